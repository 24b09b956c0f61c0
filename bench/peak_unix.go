//go:build unix

package main

import (
	"os"
	"runtime"
	"syscall"
)

// peakMiB is the most memory that an ended process had, or what this one had
// when it started it, where that is more.
func peakMiB(s *os.ProcessState) float64 {
	usage, ok := s.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	unit := 1024.0 // KiB
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		unit = 1
	}
	return float64(usage.Maxrss) * unit / (1 << 20)
}
