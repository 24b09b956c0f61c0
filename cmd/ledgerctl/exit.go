package main

import (
	"errors"

	"github.com/auditledger/auditledger/verify"
)

// Exit statuses, one table for all commands. A command's help says which of
// them it uses, and for what.
const (
	exitOK        = 0
	exitTampered  = 1 // a fault was found; nothing that a retry would mend
	exitUsage     = 2
	exitUnchecked = 3 // nothing was proven: missing, empty, unreadable
	exitTorn      = 4 // whole up to an unfinished last line
)

// status is an error that only carries an exit status: what there is to say
// was said.
type status int

func (status) Error() string { return "" }

// usageError is a wrong use of a command.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// uncheckedError is an error that kept a command from looking.
type uncheckedError struct{ error }

func (e uncheckedError) Unwrap() error { return e.error }

// tamperedError is an error that no retry would mend.
type tamperedError struct{ error }

func (e tamperedError) Unwrap() error { return e.error }

// exitOf is the exit status for an error of a command.
func exitOf(err error) int {
	if err == nil {
		return exitOK
	}
	if s, ok := errors.AsType[status](err); ok {
		return int(s)
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[tamperedError](err); ok {
		return exitTampered
	}
	return exitUnchecked // also a *leftOut
}

func verdictStatus(v verify.Verdict) error {
	if code := v.ExitCode(); code != exitOK {
		return status(code)
	}
	return nil
}
