//go:build unix && !linux

package durable

import (
	"context"
	"errors"
)

func stageUnnamed(string) (Staged, error) { return nil, errors.ErrUnsupported }

// NetworkFS knows no network file system on this platform.
func NetworkFS(string) (string, error) { return "", nil }

// LockRange needs nothing between processes: there is only one.
func (l *flock) LockRange(context.Context, uint64) (func(), error) { return func() {}, nil }

// TryLockRange needs nothing between processes either.
func (l *flock) TryLockRange(uint64) (func(), bool, error) { return func() {}, true, nil }

func (*flock) SoleProcess() bool { return true }

// RangeHeld knows of no slots on this platform. The lock that a process has on
// the directory for its life cannot be seen without taking it.
func RangeHeld(string, uint64) (bool, error) { return false, nil }

func programName() string { return "" }
