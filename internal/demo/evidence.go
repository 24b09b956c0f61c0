package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// probe lets ledgerctl prove the refusal that deny showed by hand.
func (d *demo) probe() error {
	d.title("ledgerctl probe: is rm_rf hidden, refused and recorded, and is its target left alone?")
	code, out := d.ledgerctl("probe", "--tool", "rm_rf", "--args", fmt.Sprintf(`{"path":%q}`, d.target), "--target", d.target, "--", d.gatedMCP)
	d.show(out, "  1", "  2", "     recorded", "  3", "PROVEN", "DISPROVEN", "UNKNOWN")
	d.claim(code == 0 && strings.Contains(out, "\nPROVEN: "), "proven, exit status 0")
	return nil
}

// plan runs two notes, and looks after each whether to go on.
func (d *demo) plan() error {
	d.title("ledgerctl run: two notes and a third that does not come out as expected")
	step := func(id, text, expected string) string {
		return fmt.Sprintf(`{"do":{"tool":"write_note","args":{"request_id":%q,"text":%q}},"observe":{"tool":"read_ledger","args":{}},`+
			`"expect":[{"at":"/structuredContent/notes","contains":{"request_id":%q,"text":%q}}]}`, id, text, id, expected)
	}
	plan := `{"version":1,"steps":[` + step("req-plan-0001", "one", "one") + "," + step("req-plan-0002", "two", "two") + "," + step("req-plan-0003", "three", "four") + `]}`
	file := filepath.Join(d.dir, "plan.json")
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		return err
	}
	code, out := d.ledgerctl("run", file, "--", d.gatedMCP)
	d.show(out, "step", "STOPPED", "DONE")
	d.claim(code == 4 && strings.Count(out, " CONTINUE") == 2 && strings.Contains(out, "step 3  STOP "), "stopped at the third, exit status 4: that the tool answered with success was not believed")
	return nil
}
