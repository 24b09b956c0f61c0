//go:build unix

package durable

import "syscall"

func setUmask(mask int) int { return syscall.Umask(mask) }
