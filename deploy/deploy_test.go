// Package deploy_test checks the files of this directory as far as a tool that
// is here can: their syntax always, the tools of their own where those are.
package deploy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// tool runs a program that checks a file, or says that it is not here.
func tool(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not here: only the syntax was checked", name)
	}
	c := exec.Command(path, args...)
	c.Dir = dir
	// Nothing of this machine's own settings, and no network.
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "KUBECONFIG=/dev/null", "CHECKPOINT_DISABLE=1", "LC_ALL=C"}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestCron takes the file as cron does: settings, comments, and one line of
// five times, a user and a command, which a shell can read.
func TestCron(t *testing.T) {
	jobs := 0
	job := regexp.MustCompile(`^([0-9*/,-]+ ){5}([a-z][a-z0-9-]*) (.+)$`)
	setting := regexp.MustCompile(`^[A-Z_]+=\S+$`)
	text := read(t, "cron/ledger-anchor")
	if !strings.HasSuffix(text, "\n") {
		t.Error("cron does not read a last line without a newline")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		m := job.FindStringSubmatch(line)
		switch {
		case line == "" || line[0] == '#' || setting.MatchString(line):
		case m == nil:
			t.Errorf("cron cannot read %q", line)
		default:
			jobs++
			if strings.Contains(m[3], "%") {
				t.Errorf("a %% ends a command of cron: %q", m[3])
			}
			if out, err := exec.Command("sh", "-n", "-c", m[3]).CombinedOutput(); err != nil {
				t.Errorf("%q: %v: %s", m[3], err, out)
			}
		}
	}
	if jobs != 1 {
		t.Errorf("%d jobs", jobs)
	}
	for _, needs := range []string{"PATH=", "LEDGER_DIR=", "LEDGER_ANCHOR=s3://", "AWS_REGION=", "ledgerctl anchor push"} {
		if !strings.Contains(text, needs) {
			t.Errorf("%s is missing, and cron sets nothing itself", needs)
		}
	}
}

// TestSystemd has systemd read the units, with a command that exists.
func TestSystemd(t *testing.T) {
	dir := t.TempDir()
	command := filepath.Join(dir, "ledgerctl")
	if err := os.WriteFile(command, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var units []string
	for name, needs := range map[string][]string{
		"ledger-anchor.service": {"Type=oneshot", "TimeoutStartSec=", "EnvironmentFile=", "ExecStart=/usr/local/bin/ledgerctl anchor push "},
		"ledger-anchor.timer":   {"OnCalendar=hourly", "Persistent=yes"},
		"ledger-exporter.service": {"Restart=", "StateDirectory=", "ReadOnlyPaths=-/var/lib/gated-mcp", "ExecReload=/bin/kill -HUP $MAINPID", "WantedBy=multi-user.target",
			"ExecStart=/usr/local/bin/ledgerctl exporter /var/lib/gated-mcp/ledger --listen 127.0.0.1:"},
	} {
		text := read(t, "systemd/"+name)
		if strings.HasSuffix(name, ".service") {
			needs = append(needs, "User=gated-mcp", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=\n", "PrivateTmp=yes", "UMask=0077")
		}
		for _, n := range needs {
			if !strings.Contains(text, "\n"+n) {
				t.Errorf("%s: %s is missing", name, n)
			}
		}
		units = append(units, filepath.Join(dir, name))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Replace(text, "/usr/local/bin/ledgerctl", command, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := tool(t, dir, "systemd-analyze", append([]string{"verify", "--man=no", "--recursive-errors=no"}, units...)...)
	for line := range strings.Lines(out) {
		if strings.Contains(line, "ledger-") && !strings.Contains(line, "gated-mcp") {
			t.Errorf("systemd says: %s", line)
		}
	}
}

// policy is an IAM policy document.
type policy struct {
	Version   string
	Statement []struct {
		Sid, Effect                 string
		Action, NotAction, Resource words
		Condition                   map[string]map[string]words
	}
}

// words are a string or several.
type words []string

func (w *words) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*w = words{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(w))
}

// granted is what a policy allows and denies without a condition.
func granted(t *testing.T, name string) (allowed, denied []string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(read(t, name)))
	d.DisallowUnknownFields()
	var p policy
	if err := d.Decode(&p); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if p.Version != "2012-10-17" {
		t.Errorf("%s: version %q", name, p.Version)
	}
	sids := map[string]bool{}
	for _, s := range p.Statement {
		if sids[s.Sid] || !regexp.MustCompile(`^[A-Za-z0-9]+$`).MatchString(s.Sid) {
			t.Errorf("%s: sid %q", name, s.Sid)
		}
		sids[s.Sid] = true
		for _, r := range s.Resource {
			if !regexp.MustCompile(`^arn:aws:s3:::BUCKET(/\*|/PREFIX/\*)?$`).MatchString(r) {
				t.Errorf("%s, %s: resource %q", name, s.Sid, r)
			}
		}
		switch s.Effect {
		case "Allow":
			for _, a := range s.Action {
				if strings.Contains(a, "*") {
					t.Errorf("%s, %s: allows %s", name, s.Sid, a)
				}
			}
			if s.NotAction != nil {
				t.Errorf("%s, %s: allows all but", name, s.Sid)
			}
			allowed = append(allowed, s.Action...)
		case "Deny":
			if s.Condition == nil {
				denied = append(denied, s.Action...)
				if s.NotAction != nil {
					denied = append(denied, "all but "+strings.Join(s.NotAction, " "))
				}
			}
		default:
			t.Errorf("%s, %s: effect %q", name, s.Sid, s.Effect)
		}
	}
	slices.Sort(allowed)
	return allowed, denied
}

// TestIAM holds the policies to what ledgerctl asks for, and no more.
func TestIAM(t *testing.T) {
	allowed, denied := granted(t, "iam/writer.json")
	want := []string{"s3:GetBucketObjectLockConfiguration", "s3:GetBucketPublicAccessBlock", "s3:GetBucketVersioning", "s3:GetObject", "s3:GetObjectRetention",
		"s3:GetObjectVersion", "s3:ListBucketVersions", "s3:PutObject", "s3:PutObjectRetention"}
	if !slices.Equal(allowed, want) {
		t.Errorf("the writer may %v, want %v", allowed, want)
	}
	for _, d := range []string{"s3:BypassGovernanceRetention", "s3:DeleteObject", "s3:DeleteObjectVersion", "s3:PutBucketVersioning", "s3:PutBucketObjectLockConfiguration", "s3:PutLifecycleConfiguration"} {
		if !slices.Contains(denied, d) {
			t.Errorf("the writer is not denied %s", d)
		}
	}
	allowed, denied = granted(t, "iam/verifier.json")
	if want := []string{"s3:GetObject", "s3:GetObjectRetention", "s3:GetObjectVersion", "s3:ListBucketVersions"}; !slices.Equal(allowed, want) {
		t.Errorf("the verifier may %v, want %v", allowed, want)
	} else if !slices.Contains(denied, "all but s3:GetObject s3:GetObjectVersion s3:GetObjectRetention s3:ListBucketVersions") {
		t.Errorf("the verifier is denied only %v", denied)
	}
	for _, name := range []string{"iam/writer.json", "iam/verifier.json"} {
		if !strings.Contains(read(t, name), `"aws:SecureTransport": "false"`) {
			t.Errorf("%s allows plain HTTP", name)
		}
	}
	// What the error texts call missing is what the policy gives.
	source := read(t, "../anchor/s3anchor/s3anchor.go")
	for _, action := range want {
		if !strings.Contains(source, action) {
			t.Errorf("no error of s3anchor names %s", action)
		}
	}
}

// yamlNode reads the YAML that these files are in: mappings and lists of block
// style, two spaces a level, plain and double-quoted scalars. Anything else is
// an error. lines are those below indent.
func yamlNode(lines []string, indent int) (any, []string, error) {
	prefix := strings.Repeat(" ", indent)
	if len(lines) == 0 || !strings.HasPrefix(lines[0], prefix) || strings.HasPrefix(lines[0], prefix+" ") {
		return nil, nil, fmt.Errorf("want %d spaces before %q", indent, append(lines, "the end")[0])
	}
	if strings.HasPrefix(lines[0], prefix+"- ") {
		list := []any{}
		for len(lines) > 0 && strings.HasPrefix(lines[0], prefix+"- ") {
			item := lines[0][indent+2:]
			if !yamlKey.MatchString(item) {
				v, err := yamlScalar(item)
				if err != nil {
					return nil, nil, err
				}
				list, lines = append(list, v), lines[1:]
				continue
			}
			// A mapping that begins on the line of the dash.
			lines[0] = prefix + "  " + item
			v, rest, err := yamlNode(lines, indent+2)
			if err != nil {
				return nil, nil, err
			}
			list, lines = append(list, v), rest
		}
		return list, lines, nil
	}
	m := map[string]any{}
	for len(lines) > 0 && strings.HasPrefix(lines[0], prefix) && !strings.HasPrefix(lines[0], prefix+"- ") {
		k := yamlKey.FindStringSubmatch(lines[0][indent:])
		if k == nil {
			return nil, nil, fmt.Errorf("no mapping: %q", lines[0])
		}
		if _, twice := m[k[1]]; twice {
			return nil, nil, fmt.Errorf("key %s twice", k[1])
		}
		lines = lines[1:]
		if k[2] != "" {
			v, err := yamlScalar(k[2])
			if err != nil {
				return nil, nil, err
			}
			m[k[1]] = v
			continue
		}
		v, rest, err := yamlNode(lines, indent+2)
		if err != nil {
			return nil, nil, err
		}
		m[k[1]], lines = v, rest
	}
	return m, lines, nil
}

var yamlKey = regexp.MustCompile(`^([A-Za-z0-9./_-]+):(?: (\S.*))?$`)

func yamlScalar(s string) (string, error) {
	if strings.HasPrefix(s, `"`) {
		var text string
		err := json.Unmarshal([]byte(s), &text)
		return text, err
	}
	if strings.ContainsAny(s, "{}[]&*!|>'\"%@`#\t") || strings.Contains(s, ": ") || strings.HasSuffix(s, ":") {
		return "", fmt.Errorf("not a plain scalar: %q", s)
	}
	return s, nil
}

func parseYAML(text string) (any, error) {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if t := strings.TrimSpace(line); t == "" || t[0] == '#' {
			continue
		}
		if strings.TrimRight(line, " \t") != line {
			return nil, fmt.Errorf("blanks at the end of %q", line)
		}
		lines = append(lines, line)
	}
	v, rest, err := yamlNode(lines, 0)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("left over: %q", rest[0])
	}
	return v, err
}

// at is what is at a path of names and numbers.
func at(v any, path string) any {
	for _, p := range strings.Split(path, "/") {
		switch x := v.(type) {
		case map[string]any:
			v = x[p]
		case []any:
			var i int
			if _, err := fmt.Sscan(p, &i); err != nil || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

func TestKubernetes(t *testing.T) {
	text := read(t, "kubernetes/anchor-cronjob.yaml")
	v, err := parseYAML(text)
	if err != nil {
		t.Fatal(err)
	}
	const pod = "spec/jobTemplate/spec/template/spec"
	for path, want := range map[string]string{
		"apiVersion": "batch/v1", "kind": "CronJob", "spec/concurrencyPolicy": "Forbid", pod + "/restartPolicy": "Never",
		pod + "/securityContext/runAsNonRoot": "true", pod + "/containers/0/securityContext/readOnlyRootFilesystem": "true",
		pod + "/containers/0/securityContext/allowPrivilegeEscalation": "false", pod + "/containers/0/securityContext/capabilities/drop/0": "ALL",
		pod + "/containers/0/command/1": "anchor", pod + "/containers/0/command/2": "push", pod + "/containers/0/env/0/name": "LEDGER_ANCHOR",
		pod + "/containers/0/volumeMounts/0/readOnly": "true",
	} {
		if got := at(v, path); got != want {
			t.Errorf("%s is %v, want %s", path, got, want)
		}
	}
	// Each mount has its volume.
	mounts, _ := at(v, pod+"/containers/0/volumeMounts").([]any)
	volumes, _ := at(v, pod+"/volumes").([]any)
	for _, m := range mounts {
		if !slices.ContainsFunc(volumes, func(w any) bool { return at(w, "name") == at(m, "name") }) {
			t.Errorf("no volume %v", at(m, "name"))
		}
	}
	if len(mounts) != 2 || strings.Contains(strings.ToLower(text), "secretkeyref") {
		t.Errorf("%d mounts", len(mounts))
	}
	for _, bad := range []string{"a: b: c\n", "a: 1\na: 2\n", "a:\n   b: 1\n", "a: [1]\n", "a: 1 \n", "- a\nb: 1\n", "\ta: 1\n"} {
		if v, err := parseYAML(bad); err == nil {
			t.Errorf("%q passes, as %v", bad, v)
		}
	}
	dir := t.TempDir()
	for name, content := range map[string]string{"job.yaml": text, "kustomization.yaml": "resources:\n  - job.yaml\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool(t, dir, "kubectl", "kustomize", dir)
}

// TestTerraform reads the file's blocks, and has terraform parse it where it is
// here; its providers would need the network.
func TestTerraform(t *testing.T) {
	text := read(t, "terraform/main.tf")
	depth, inString := 0, false
	for i, c := range text {
		switch {
		case c == '"' && text[i-1] != '\\':
			inString = !inString
		case c == '\n' && inString:
			t.Fatalf("a string does not end before byte %d", i)
		case inString:
		case strings.ContainsRune("{[(", c):
			depth++
		case strings.ContainsRune("}])", c):
			if depth--; depth < 0 {
				t.Fatalf("a bracket too many at byte %d", i)
			}
		}
	}
	if depth != 0 {
		t.Errorf("%d brackets are open at the end", depth)
	}
	for _, needs := range []string{`object_lock_enabled\s*= true`, `status\s*= "Enabled"`, `mode\s*= "COMPLIANCE"`, `block_public_acls\s*= true`, `block_public_policy\s*= true`,
		`ignore_public_acls\s*= true`, `restrict_public_buckets\s*= true`, `variable\s*= "aws:SecureTransport"`, `prevent_destroy\s*= true`,
		`\.\./iam/\$\{name\}\.json`, `resource "aws_s3_bucket_policy" "anchors"`, `resource "aws_iam_policy" "writer"`, `resource "aws_iam_policy" "verifier"`} {
		if !regexp.MustCompile(needs).MatchString(text) {
			t.Errorf("%s is missing", needs)
		}
	}
	// Each resource that is spoken of is there.
	declared := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:resource|data) "(\w+)" "(\w+)"`).FindAllStringSubmatch(text, -1) {
		declared[m[1]+"."+m[2]] = true
	}
	for _, m := range regexp.MustCompile(`\b(aws_\w+\.\w+)`).FindAllStringSubmatch(text, -1) {
		if !declared[m[1]] {
			t.Errorf("%s is not declared", m[1])
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tool(t, dir, "terraform", "fmt", "-check", "-diff", dir)
}
