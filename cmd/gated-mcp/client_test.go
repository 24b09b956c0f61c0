package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// clientPolicy is the policy that the conversations of client.mjs are written for.
const clientPolicy = `{
  "version": 1,
  "allow": ["write_note", "read_ledger"],
  "deny": ["rm_rf"],
  "arg_rules": {"write_note": {"request_id": {"min_len": 8}, "text": {"max_len": 2000}}}
}
`

// TestOfficialClient lets the official TypeScript client talk to the built server in both eras of the protocol, and reads
// the ledger afterwards without any code of ours. "make test" brings the client; AUDITLEDGER_REQUIRE=node forbids skipping.
func TestOfficialClient(t *testing.T) {
	node, script := requireClient(t)
	server := program(t, "gated-mcp")
	for _, c := range []struct{ era, protocol string }{
		{"legacy", "2025-11-25"},
		{"auto", "2026-07-28"},
		{"2026-07-28", "2026-07-28"},
	} {
		t.Run(c.era, func(t *testing.T) {
			root := t.TempDir()
			policy, ledger, target := filepath.Join(root, "policy.json"), filepath.Join(root, "ledger"), filepath.Join(root, "target")
			writeClientFile(t, policy, clientPolicy)
			writeClientFile(t, target, "keep me")

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			run := exec.CommandContext(ctx, node, script, c.era, server)
			run.Dir = root
			run.Env = append(os.Environ(), "LEDGER_DIR="+ledger, "POLICY_PATH="+policy)
			run.WaitDelay = 10 * time.Second
			var stdout, stderr bytes.Buffer
			run.Stdout, run.Stderr = &stdout, &stderr
			if err := run.Run(); err != nil {
				t.Fatalf("client.mjs: %v\nsteps:\n%s\nstderr:\n%s", err, stdout.Bytes(), stderr.Bytes())
			}

			checkSteps(t, stdout.Bytes(), c.protocol)
			checkCalls(t, filepath.Join(ledger, "audit.jsonl"))
			if kept, err := os.ReadFile(target); err != nil || string(kept) != "keep me" {
				t.Errorf("the target of the denied call holds %q, %v", kept, err)
			}
		})
	}
}

// requireClient gives the paths of node and client.mjs. It skips where they cannot run, and fails where they must.
func requireClient(t *testing.T) (node, script string) {
	t.Helper()
	absent := t.Skipf
	if slices.Contains(strings.Split(os.Getenv("AUDITLEDGER_REQUIRE"), ","), "node") {
		absent = t.Fatalf
	}
	node, err := exec.LookPath("node")
	if err != nil {
		absent("no node: %v", err)
	}
	script, err = filepath.Abs("testdata/client/client.mjs")
	if err != nil {
		t.Fatal(err)
	}
	// npm writes this file last.
	if _, err := os.Stat(filepath.Join(filepath.Dir(script), "node_modules", ".package-lock.json")); err != nil {
		absent("the client's packages are not there; \"make client\" brings them: %v", err)
	}
	return node, script
}

// checkSteps compares what the client saw, step by step, with the promises of the gate.
func checkSteps(t *testing.T, out []byte, protocol string) {
	t.Helper()
	const id, text = "req-client-0001", "gate aplicado: ação única"
	type object = map[string]any
	want := []object{
		{"step": "connect", "protocol": protocol},
		{"step": "list", "names": []any{"read_ledger", "write_note"}},
		{"step": "commit", "isError": false, "structured": object{"request_id": id, "status": "committed"}},
		{"step": "replay", "isError": false, "structured": object{"request_id": id, "status": "replay"}},
		{"step": "conflict", "isError": true},
		{"step": "read", "isError": false, "structured": object{"notes": []any{object{"request_id": id, "text": text}}}},
		{"step": "denied", "code": -32602.0, "message": "tool denied: rm_rf", "data": object{"reason": "tool_not_allowed"}},
	}
	got := clientObjects(t, out)
	if len(got) != len(want) {
		t.Fatalf("%d steps, want %d:\n%s", len(got), len(want), out)
	}
	for i, members := range want {
		for name, value := range members {
			if !reflect.DeepEqual(got[i][name], value) {
				t.Errorf("step %v: %s is %v, want %v", members["step"], name, got[i][name], value)
			}
		}
	}
	// For clients that know no structured content, the same stands in the text.
	for _, step := range got[2:4] {
		var text any
		if err := json.Unmarshal([]byte(step["text"].(string)), &text); err != nil || !reflect.DeepEqual(text, step["structured"]) {
			t.Errorf("step %v: text is %v, structured content %v", step["step"], step["text"], step["structured"])
		}
	}
}

// checkCalls compares the ledger's decided tool calls, those without the intents, with what the client did.
func checkCalls(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	type call struct{ requestID, name, decision, outcome, reason string }
	var got []call
	for _, record := range clientObjects(t, data) {
		member := func(name string) string { s, _ := record[name].(string); return s }
		if member("method") == "tools/call" && member("decision") != "pending" {
			got = append(got, call{member("request_id"), member("name"), member("decision"), member("outcome"), member("reason")})
		}
	}
	want := []call{
		{"req-client-0001", "write_note", "allow", "committed", ""},
		{"req-client-0001", "write_note", "allow", "replay", ""},
		{"req-client-0001", "write_note", "allow", "error", "request_id_conflict"},
		{"observe", "read_ledger", "allow", "observed", ""},
		{"missing", "rm_rf", "deny", "not_executed", "tool_not_allowed"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("the ledger tells of\n%+v\nwant\n%+v", got, want)
	}
}

// clientObjects reads one JSON object from each line.
func clientObjects(t *testing.T, lines []byte) []map[string]any {
	t.Helper()
	var objects []map[string]any
	for line := range bytes.Lines(lines) {
		var o map[string]any
		if err := json.Unmarshal(line, &o); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		objects = append(objects, o)
	}
	return objects
}

func writeClientFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
