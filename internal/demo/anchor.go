package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// bucket is an S3 server with Object Lock on this machine.
type bucket struct {
	cmd *exec.Cmd
	in  io.Closer
	env []string
}

// startBucket starts the S3 server of the tests, with one bucket. It ends with
// its input.
func (d *demo) startBucket(bin string) (*bucket, error) {
	program, err := filepath.Abs(filepath.Join(bin, "tools", "s3demo"))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(d.ctx, program, "-dir", filepath.Join(d.dir, "s3"), "-bucket", "anchors", "-stdin")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: run make demo", err)
	}
	b := &bucket{cmd: cmd, in: in}
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			b.stop()
			return nil, fmt.Errorf("the S3 server did not start: %w", err)
		}
		if address, ok := strings.CutPrefix(strings.TrimSpace(line), "ready "); ok {
			b.env = []string{"AWS_ENDPOINT_URL_S3=" + address, "AWS_ACCESS_KEY_ID=demo", "AWS_SECRET_ACCESS_KEY=demo-secret",
				"AWS_REGION=us-east-1", "LEDGER_ANCHOR=s3://anchors/demo"}
			return b, nil
		}
	}
}

func (b *bucket) stop() {
	if b != nil {
		b.in.Close()
		b.cmd.Wait()
	}
}

func (d *demo) anchor() (err error) {
	d.title("The head is anchored in an object-locked S3 bucket, as cron does it")
	if d.bucket, err = d.startBucket(d.bin); err != nil {
		return err
	}
	code, out := d.ledgerctl("anchor", "push", d.ledger)
	d.say("anchor push: %s", strings.TrimSpace(out))
	d.claim(code == 0, "pushed, and its lock read back")
	code, out = d.ledgerctl("anchor", "check")
	d.show(out, "ok    trial delete", "ok  trial", "trial")
	d.claim(code == 0 && strings.Contains(out, "refused"), "the bucket refuses to delete a locked object")
	code, out = d.ledgerctl("verify", d.ledger)
	d.show(out, "ANCHORED")
	d.claim(code == 0 && strings.Contains(out, "\nANCHORED: "), "verify starts from the bucket: anchored")
	return nil
}

func (d *demo) anchorFinds() error {
	d.title("What the owner of the machine tries, head.json gone and every hash right")
	for _, try := range []struct {
		name, what string
		change     func([]byte) []byte
	}{
		{"anchored-cut", "the last records cut off", func(b []byte) []byte {
			lines := bytes.SplitAfter(b, []byte("\n"))
			return bytes.Join(lines[:len(lines)-3], nil)
		}},
		{"anchored-rewritten", "a record in the middle rewritten, and all after it hashed anew", func(b []byte) []byte {
			return rewritten(b, func(n int, r map[string]any) {
				if n == 2 {
					r["name"] = "read_ledger"
				}
			})
		}},
		{"anchored-replaced", "the whole file replaced by another ledger of the same length", func(b []byte) []byte {
			return rewritten(b, func(_ int, r map[string]any) { r["policy"] = strings.Repeat("0", 64) })
		}},
	} {
		copied, err := d.copy(try.name, try.change)
		if err == nil {
			err = os.Remove(filepath.Join(copied, "head.json"))
		}
		if err != nil {
			return err
		}
		d.say("%s:", try.what)
		alone, _ := d.ledgerctl("verify", "--anchors", "", copied)
		code, out := d.ledgerctl("verify", copied)
		d.show(out, "FAULT")
		d.claim(alone == 0 && code == 1 && strings.Contains(out, "\nTAMPERED: "), "a whole chain by itself; tampered, says the bucket")
	}
	return nil
}

// rewritten is a ledger with its records changed and a new, right chain.
func rewritten(b []byte, change func(n int, r map[string]any)) []byte {
	var out bytes.Buffer
	previous := strings.Repeat("0", 64)
	for n, line := range bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) {
		var r map[string]any
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.UseNumber()
		if decoder.Decode(&r) != nil {
			return nil
		}
		change(n, r)
		delete(r, "sha256")
		r["prev_sha256"] = previous
		body, err := canonical(r)
		if err != nil {
			return nil
		}
		previous = fmt.Sprintf("%x", sha256.Sum256(append([]byte(previous), body...)))
		r["sha256"] = previous
		line, err := canonical(r)
		if err != nil {
			return nil
		}
		out.Write(append(line, '\n'))
	}
	return out.Bytes()
}

// canonical is enough of canonical JSON for the records of this demo.
func canonical(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	if bytes.ContainsAny(b.Bytes(), "\u2028\u2029") {
		err = errors.Join(err, errors.New("a record that this demo cannot write"))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
