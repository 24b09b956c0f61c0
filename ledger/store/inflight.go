package store

import (
	"fmt"
	"path/filepath"

	"github.com/auditledger/auditledger/internal/durable"
	"github.com/auditledger/auditledger/ledger"
)

// InFlight reports whether some process, this one too, holds the request id in
// dir just now: it is at work on a call with that id, or closes one. It takes
// nothing and changes nothing; the lock file is opened to read only. An id may
// be told as held where another is, once in 2^62.
//
// Where the platform has no locks per request id (all but Linux), or dir has no
// lock file, it is false.
func InFlight(dir, requestID string) (bool, error) {
	held, err := durable.RangeHeld(filepath.Join(dir, ledger.LockName), slotOf(requestID))
	if err != nil {
		return false, fmt.Errorf("see whether a call is in flight: %w", err)
	}
	return held, nil
}
