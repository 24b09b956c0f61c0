// Package bareenv gives tests, the demo and the benchmark the environment of a
// fresh machine, whatever its user has set for the programs: a ledger that is in
// use, credentials, a collector of traces, a proxy.
package bareenv

import (
	"os"
	"slices"
	"strings"
)

// Clear unsets what the programs and the libraries in them read, for this process
// and those that it starts.
func Clear() {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if slices.ContainsFunc([]string{"LEDGER_", "OTEL_", "AWS_"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) ||
			slices.Contains([]string{"POLICY_PATH", "CRASH_MARKER", "STATE_DIRECTORY"}, name) ||
			strings.HasSuffix(strings.ToUpper(name), "_PROXY") {
			os.Unsetenv(name)
		}
	}
}
