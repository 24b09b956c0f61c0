package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/auditledger/auditledger/anchor"
)

// The values of "anchor push --textfile", in the order of the file. Every file
// of every version has the same HELP for a name: the node exporter wants it so.
var textValues = []struct{ name, help string }{
	{"ledger_anchor_last_run_timestamp_seconds", "When anchoring was last tried, whatever became of it."},
	{"ledger_anchor_last_success_timestamp_seconds", "When the head of the ledger was last found or made anchored."},
	{"ledger_anchored_seq", "Position of the last anchored record."},
	{"ledger_unanchored_records", "Records after the last anchored one."},
}

// writeTextfile replaces the file whole or not at all. A run that failed moves
// only the time of the last run: the others are taken over from the file.
func writeTextfile(path, dir string, now time.Time, r *anchor.Result, failed error) error {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	label := `{ledger="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(dir) + `"}`
	values := map[string]string{}
	if old, err := os.ReadFile(path); err == nil {
		for line := range strings.Lines(string(old)) {
			for _, v := range textValues {
				if rest, ok := strings.CutPrefix(line, v.name+label+" "); ok {
					values[v.name] = strings.TrimSpace(rest)
				}
			}
		}
	}
	seconds := fmt.Sprintf("%d.%03d", now.Unix(), now.Nanosecond()/1e6)
	values[textValues[0].name] = seconds
	if failed == nil {
		values[textValues[1].name] = seconds
		values[textValues[2].name] = fmt.Sprint(r.Head.Seq)
		values[textValues[3].name] = "0"
	}
	var b bytes.Buffer
	for _, v := range textValues {
		if value, ok := values[v.name]; ok {
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %[1]s gauge\n%[1]s%[3]s %[4]s\n", v.name, v.help, label, value)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".anchor-")
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
