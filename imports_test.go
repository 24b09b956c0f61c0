// Package auditledger_test holds the house rules: which room may import, reach and call what (DESIGN, "Rooms").
package auditledger_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/auditledger/auditledger"

// Rooms are written from the module's root ("./ledger/store"), other packages by their import path. A pattern is one
// package, or with "/..." that package and everything below it. Test files are free of these rules.

// programs are where the parts meet: they name concrete stores and sinks, and read flags, environment and signals.
var programs = []string{"./cmd/...", "./internal/demo/...", "./bench/..."}

// levels order the rooms. A package imports from its own room and from lower levels, never sideways or upwards.
var levels = [][]string{
	{"./ledger/canon", "./internal/durable/...", "./internal/bareenv"},
	{"./ledger"},
	{"./ledger/store/...", "./anchor/...", "./verify/..."},
	{"./server/..."},
	programs,
}

// importers says who alone may import a package; an empty list leaves it to tests.
var importers = []struct {
	target string
	by     []string
}{
	{"./ledger/store/...", programs},
	{"./anchor/fileanchor/...", programs},
	{"./anchor/s3anchor/...", programs},
	{"./internal/durable", append([]string{"./ledger/store/...", "./server/effects/...", "./internal/durable/..."}, programs...)},
	{"./internal/durable/crashfs", nil},
	{"./internal/bareenv", []string{"./internal/demo/...", "./bench/..."}},
	{"github.com/modelcontextprotocol/go-sdk/...", append([]string{"./server", "./server/gate/...", "./server/upstream/..."}, programs...)},
	{"github.com/spf13/...", []string{"./cmd/..."}},
	{"github.com/prometheus/...", []string{"./server/metrics/..."}},
	{"github.com/aws/...", []string{"./anchor/s3anchor/..."}},
	{"go.opentelemetry.io/...", []string{"./server/tracing/..."}},
	{"github.com/go-logr/...", []string{"./server/tracing/..."}},
	{"flag", programs},
	{"os/signal", programs},
}

// reaches says what a room never imports, not even through others.
var reaches = []struct {
	rooms, except, never []string
}{
	{
		rooms:  []string{"./ledger/...", "./anchor/...", "./verify/...", "./server/policy/...", "./internal/durable/..."},
		except: []string{"./anchor/s3anchor/..."},
		never: []string{
			"net", "net/http/...", "database/sql/...",
			"github.com/aws/...", "github.com/spf13/...", "github.com/prometheus/...", "github.com/modelcontextprotocol/...", "go.opentelemetry.io/...",
		},
	},
	{rooms: []string{"./verify/..."}, never: []string{"./ledger/store/..."}},
}

// unfollowed is not looked behind: golang.org/x/sys/windows takes a type from net, and opens no connection.
var unfollowed = []string{"golang.org/x/sys/..."}

// leaves import the standard library and what is named here, nothing else.
var leaves = map[string][]string{
	"./ledger/canon":     nil,
	"./internal/durable": {"golang.org/x/sys/..."},
	"./internal/bareenv": nil,
}

// processState is what only programs look at, and what ./internal/bareenv clears.
var processState = []string{"os.Args", "os.Environ", "os.ExpandEnv", "os.Getenv", "os.LookupEnv", "syscall.Environ", "syscall.Getenv"}

// vagueNames say nothing of what a package is for.
var vagueNames = []string{"common", "config", "helper", "helpers", "types", "util", "utils"}

// graph holds packages by name, those of the module as rooms.
type graph map[string]*node

type node struct {
	imports []string
	uses    []string // members of processState, each as "os.Getenv in FILE"
}

func TestImportRules(t *testing.T) {
	// A cached result stands while the files and folders that the test itself opened stay as they are: go list's count not.
	if err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && name != "." && strings.HasPrefix(d.Name(), ".") || name == "bin" || d.Name() == "node_modules" {
			return filepath.SkipDir
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("go.mod"); err != nil {
		t.Fatal(err)
	}

	g := load(t)
	rooms := 0
	for name := range g {
		if isRoom(name) {
			rooms++
		}
	}
	if rooms == 0 {
		t.Fatal("no package of the module was looked at")
	}
	for _, v := range violations(g) {
		t.Error(v)
	}
}

// TestImportRulesCanFail breaks each rule once, beside a graph that keeps them all.
func TestImportRulesCanFail(t *testing.T) {
	lawful := graph{
		"./ledger/canon":          {imports: []string{"math/big"}},
		"./internal/durable":      {imports: []string{"os", "golang.org/x/sys/unix"}},
		"./ledger":                {imports: []string{"./ledger/canon", "net/url"}},
		"./ledger/store":          {imports: []string{"./ledger", "./internal/durable"}},
		"./verify":                {imports: []string{"./ledger"}},
		"./verify/harness":        {imports: []string{"./verify"}},
		"./anchor/s3anchor":       {imports: []string{"./anchor", "github.com/aws/aws-sdk-go-v2/service/s3"}},
		"./server/effects":        {imports: []string{"./internal/durable"}},
		"./server/metrics":        {imports: []string{"github.com/prometheus/client_golang/prometheus"}},
		"./server/tracing":        {imports: []string{"go.opentelemetry.io/otel/sdk/trace"}},
		"./server":                {imports: []string{"./server/metrics", "github.com/modelcontextprotocol/go-sdk/mcp"}},
		"./cmd/ledgerctl":         {imports: []string{"./server", "./ledger/store", "github.com/spf13/cobra", "flag"}, uses: []string{"os.Getenv in main.go"}},
		"golang.org/x/sys/unix":   {imports: []string{"net"}},
		"net/url":                 {},
		"net/http":                {imports: []string{"net"}},
		"example.org/http-client": {imports: []string{"net/http"}},
	}
	if got := violations(lawful); len(got) != 0 {
		t.Fatalf("a lawful graph is called unlawful: %q", got)
	}

	sdk := "github.com/modelcontextprotocol/go-sdk/mcp"
	for _, c := range []struct {
		room  string
		broke node
		want  string
	}{
		{"./ledger", node{imports: []string{"./verify"}}, "./ledger imports ./verify: not of a lower level"},
		{"./anchor", node{imports: []string{"./verify"}}, "./anchor imports ./verify: not of a lower level"},
		{"./ledger/canon", node{imports: []string{"./ledger"}}, "./ledger/canon imports ./ledger: not of a lower level"},
		{"./server", node{imports: []string{"./cmd/ledgerctl"}}, "./server imports ./cmd/ledgerctl: not of a lower level"},
		{"./shed", node{}, "./shed has no level: give it one in imports_test.go"},
		{"./server/gate", node{imports: []string{"./ledger/store"}}, "./server/gate imports ./ledger/store: reserved for"},
		{"./server", node{imports: []string{"./anchor/fileanchor"}}, "./server imports ./anchor/fileanchor: reserved for"},
		{"./server/gate", node{imports: []string{"./internal/durable"}}, "./server/gate imports ./internal/durable: reserved for"},
		{"./server/effects", node{imports: []string{"./internal/durable/crashfs"}}, "./server/effects imports ./internal/durable/crashfs: reserved for []"},
		{"./server/effects", node{imports: []string{sdk}}, "./server/effects imports " + sdk + ": reserved for"},
		{"./internal/demo", node{imports: []string{"github.com/spf13/cobra"}}, "./internal/demo imports github.com/spf13/cobra: reserved for"},
		{"./server/gate", node{imports: []string{"github.com/prometheus/client_golang/prometheus"}}, "reserved for [./server/metrics/...]"},
		{"./server", node{imports: []string{"github.com/aws/smithy-go"}}, "reserved for [./anchor/s3anchor/...]"},
		{"./server/gate", node{imports: []string{"go.opentelemetry.io/otel/trace"}}, "reserved for [./server/tracing/...]"},
		{"./server", node{imports: []string{"os/signal"}}, "./server imports os/signal: reserved for"},
		{"./ledger/store", node{imports: []string{"flag"}}, "./ledger/store imports flag: reserved for"},
		{"./ledger", node{imports: []string{"net"}}, "./ledger reaches net"},
		{"./verify", node{imports: []string{"example.org/http-client"}}, "./verify reaches net/http: ./verify > example.org/http-client > net/http"},
		{"./server/policy", node{imports: []string{"./server"}}, "./server/policy reaches " + sdk + ": ./server/policy > ./server > " + sdk},
		{"./anchor", node{imports: []string{"./anchor/s3anchor"}}, "./anchor reaches github.com/aws/"},
		{"./verify", node{imports: []string{"./ledger/store"}}, "./verify reaches ./ledger/store"},
		{"./ledger/canon", node{imports: []string{"golang.org/x/sys/unix"}}, "./ledger/canon imports golang.org/x/sys/unix: a leaf"},
		{"./internal/durable", node{imports: []string{"./ledger"}}, "./internal/durable imports ./ledger: a leaf"},
		{"./server", node{uses: []string{"os.Getenv in server.go"}}, "./server uses os.Getenv in server.go: reserved for"},
		{"./server/util", node{}, "./server/util: a name that says nothing"},
		{"./ledger/types/v2", node{}, "./ledger/types/v2: a name that says nothing"},
	} {
		g := maps.Clone(lawful)
		g[c.room] = &c.broke
		got := violations(g)
		if !slices.ContainsFunc(got, func(v string) bool { return strings.Contains(v, c.want) }) {
			t.Errorf("%s importing %q, using %q: found %q, want one with %q", c.room, c.broke.imports, c.broke.uses, got, c.want)
		}
	}
}

// TestProcessStateIsSeen shows that the search in source finds each form of a use, and no more.
func TestProcessStateIsSeen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.go")
	source := "package a\nimport (\"os\"; sys \"syscall\")\nvar _ = os.Args[0]\nfunc f(l lister) { get := os.LookupEnv; _ = get; l.Getenv(); os.Exit(sys.Getpid()); sys.Environ() }\n"
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := usesIn(file)
	want := []string{"os.Args in a.go", "os.LookupEnv in a.go", "syscall.Environ in a.go"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("found %q (%v), want %q", got, err, want)
	}
}

// violations tells every break of the rules, in a fixed order.
func violations(g graph) []string {
	var found []string
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }

	for _, room := range slices.Sorted(maps.Keys(g)) {
		if !isRoom(room) {
			continue
		}
		level, own := levelOf(room)
		if level < 0 {
			add("%s has no level: give it one in imports_test.go", room)
		}
		for _, element := range strings.Split(room, "/") {
			if slices.Contains(vagueNames, element) {
				add("%s: a name that says nothing", room)
			}
		}
		if !matchesAny(room, programs) && room != "./internal/bareenv" {
			for _, use := range g[room].uses {
				add("%s uses %s: reserved for %v", room, use, programs)
			}
		}
		allowed, leaf := leaves[room]
		for _, target := range g[room].imports {
			if isRoom(target) && level >= 0 {
				if l, r := levelOf(target); l >= level && r != own {
					add("%s imports %s: not of a lower level", room, target)
				}
			}
			for _, rule := range importers {
				if matches(target, rule.target) && !matches(room, rule.target) && !matchesAny(room, rule.by) {
					add("%s imports %s: reserved for %v", room, target, rule.by)
				}
			}
			if leaf && (isRoom(target) || !isStandard(target)) && !matchesAny(target, allowed) {
				add("%s imports %s: a leaf, which may import the standard library and %v", room, target, allowed)
			}
		}
		for _, rule := range reaches {
			if !matchesAny(room, rule.rooms) || matchesAny(room, rule.except) {
				continue
			}
			for _, chain := range g.chains(room, rule.never) {
				add("%s reaches %s: %s", room, chain[len(chain)-1], strings.Join(chain, " > "))
			}
		}
	}
	return found
}

// chains gives a shortest way from a room to each package that matches never. It does not look behind those.
func (g graph) chains(room string, never []string) [][]string {
	var found [][]string
	seen := map[string]bool{room: true}
	for queue := [][]string{{room}}; len(queue) > 0; queue = queue[1:] {
		chain := queue[0]
		n := g[chain[len(chain)-1]]
		if n == nil || matchesAny(chain[len(chain)-1], unfollowed) {
			continue
		}
		for _, target := range n.imports {
			if seen[target] {
				continue
			}
			seen[target] = true
			next := append(slices.Clone(chain), target)
			if matchesAny(target, never) {
				found = append(found, next)
			} else {
				queue = append(queue, next)
			}
		}
	}
	return found
}

func isRoom(name string) bool { return strings.HasPrefix(name, "./") }

// isStandard tells packages of the standard library by their first element, which holds no dot.
func isStandard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".")
}

func matches(name, pattern string) bool {
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == below || strings.HasPrefix(name, below+"/")
	}
	return name == pattern
}

func matchesAny(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(name, p) })
}

// levelOf gives a room's level and the pattern that names the room there; -1 where there is none.
func levelOf(room string) (int, string) {
	for i, level := range levels {
		for _, pattern := range level {
			if matches(room, pattern) {
				return i, pattern
			}
		}
	}
	return -1, ""
}

// load reads the module's packages and all that they import, on every platform that we build for.
func load(t *testing.T) graph {
	t.Helper()
	g := graph{}
	sources := map[string][]string{} // by room
	for _, platform := range []string{"linux", "darwin", "windows"} {
		list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,Imports,Standard", "./...")
		list.Env = append(os.Environ(), "GOOS="+platform, "CGO_ENABLED=0")
		var stderr bytes.Buffer
		list.Stderr = &stderr
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list for %s: %v\n%s", platform, err, stderr.Bytes())
		}
		decoder := json.NewDecoder(bytes.NewReader(out))
		for {
			var p struct {
				ImportPath, Dir  string
				GoFiles, Imports []string
				Standard         bool
			}
			if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("go list for %s: %v", platform, err)
			}
			if len(p.GoFiles) == 0 && len(p.Imports) == 0 {
				continue // this test's own package
			}
			name := localName(p.ImportPath)
			if g[name] == nil {
				g[name] = &node{}
			}
			for _, i := range p.Imports {
				g[name].imports = append(g[name].imports, localName(i))
			}
			if isRoom(name) {
				for _, file := range p.GoFiles {
					sources[name] = append(sources[name], filepath.Join(p.Dir, file))
				}
			}
		}
	}
	for name, n := range g {
		n.imports = distinct(n.imports)
		for _, file := range distinct(sources[name]) {
			uses, err := usesIn(file)
			if err != nil {
				t.Fatal(err)
			}
			n.uses = append(n.uses, uses...)
		}
	}
	return g
}

func localName(importPath string) string {
	if rest, ok := strings.CutPrefix(importPath, module); ok && (rest == "" || rest[0] == '/') {
		return "." + rest
	}
	return importPath
}

func distinct[S ~[]E, E cmp.Ordered](s S) S {
	slices.Sort(s)
	return slices.Compact(s)
}

// usesIn tells which members of processState a source file names, called or not.
func usesIn(file string) ([]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	packages := map[string]string{} // name in this file: import path
	for _, i := range f.Imports {
		importPath, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return nil, err
		}
		if i.Name != nil {
			packages[i.Name.Name] = importPath
		} else {
			packages[path.Base(importPath)] = importPath
		}
	}
	var uses []string
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				if name := packages[x.Name] + "." + s.Sel.Name; slices.Contains(processState, name) {
					uses = append(uses, name+" in "+filepath.Base(file))
				}
			}
		}
		return true
	})
	return distinct(uses), nil
}
