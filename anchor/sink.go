package anchor

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/auditledger/auditledger/ledger"
)

// A Sink keeps objects that nobody can change for a time. Its keys lie below a
// prefix that it was made with. Its methods may be called at once.
//
// An error that is none of the sentinels below says that the sink could not be
// asked, or refused to answer: it proves nothing. Its text says what was tried
// on what, why it failed, and what to do.
type Sink interface {
	// String is the address of the sink as a user gives it.
	String() string

	// Ready reports whether what would be created now would be locked: where it
	// is not so, the error wraps ErrNotLocking. now is the sink's clock, zero
	// where it has none of its own.
	Ready(ctx context.Context) (now time.Time, err error)

	// Create makes an object where there is none, with a lock, and is durable
	// on return. Where the key is taken, the error wraps ErrExists. Any error
	// leaves it open whether the object is there: an answer can get lost.
	Create(ctx context.Context, key string, body []byte, lock Lock) (version string, err error)

	// Versions gives every version and delete marker whose key is begin or
	// sorts after it, in the order of keys, the newest of a key first. It ends
	// with the first error. It gives nothing that the sink does not list.
	Versions(ctx context.Context, begin string) iter.Seq2[Version, error]

	// Read gives the content of a version, and its lock as it is now. Where the
	// version is not there the error wraps ErrAbsent, where its bytes are not
	// those that were created ErrAltered. Content longer than MaxStatement may
	// be cut at MaxStatement+1 bytes.
	Read(ctx context.Context, key, version string) ([]byte, Lock, error)

	// Stat gives the lock of a version and the digest that the sink has of its
	// content, zero where it has none. Its errors are those of Read.
	Stat(ctx context.Context, key, version string) (Lock, ledger.Hash, error)
}

// What a Sink's errors wrap.
var (
	ErrExists     = errors.New("the key is taken")
	ErrAbsent     = errors.New("it is not there")
	ErrAltered    = errors.New("its bytes are not those that were stored")
	ErrNotLocking = errors.New("what is stored there is not locked")
)

// A Version is one version of an object, or a delete marker.
type Version struct {
	Key    string
	ID     string
	Marker bool
	Time   time.Time
}

// A Mode is the strength of a lock.
type Mode string

const (
	None       Mode = ""           // anybody with the right to may replace it
	ReadOnly   Mode = "READ-ONLY"  // a file without write permission: its owner may replace it
	Governance Mode = "GOVERNANCE" // who has the right to bypass may remove it
	Compliance Mode = "COMPLIANCE" // nobody may remove it before its date
)

// A Lock is what keeps an object as it is.
type Lock struct {
	Mode  Mode
	Until time.Time // zero where the mode has no end
}

// Holds reports whether the lock is in force at a time.
func (l Lock) Holds(at time.Time) bool {
	return l.Mode != None && (l.Until.IsZero() || at.Before(l.Until))
}

// Enough reports whether l keeps as well as asked.
func (l Lock) Enough(asked Lock) bool {
	switch l.Mode {
	case ReadOnly:
		return true
	case Compliance:
	case Governance:
		if asked.Mode != Governance {
			return false
		}
	default:
		return false
	}
	return !l.Until.Before(asked.Until)
}

func (l Lock) String() string {
	switch {
	case l.Mode == None:
		return "no lock"
	case l.Until.IsZero():
		return string(l.Mode)
	}
	return string(l.Mode) + " until " + l.Until.UTC().Format(time.RFC3339)
}
