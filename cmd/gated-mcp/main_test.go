package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/auditledger/auditledger/internal/bareenv"
)

// built is the folder of the programs under test.
var built string

func TestMain(m *testing.M) {
	bareenv.Clear()
	os.Exit(func() int {
		var err error
		if built, err = os.MkdirTemp("", "gated-mcp-"); err == nil {
			err = os.Chmod(built, 0o755) // some servers run as another user
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(built)
		// A program with the race detector waits for a second at its end.
		os.Setenv("GORACE", "atexit_sleep_ms=10 "+os.Getenv("GORACE"))
		return m.Run()
	}())
}

// builds builds each program once, with the race detector where the tests have it.
var builds = map[string]func() error{"gated-mcp": build("."), "ledgerctl": build("../ledgerctl")}

func build(pkg string) func() error {
	return sync.OnceValue(func() error {
		args := []string{"build"}
		if raced() {
			args = append(args, "-race")
		}
		out, err := exec.Command("go", append(args, "-o", built+string(filepath.Separator), pkg)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("go build: %w\n%s", err, out)
		}
		return nil
	})
}

// raced reports whether the race detector is on.
func raced() bool {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}

// program is the path of a built program.
func program(t *testing.T, name string) string {
	t.Helper()
	if err := builds[name](); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(built, name)
}
