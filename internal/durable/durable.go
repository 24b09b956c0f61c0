// Package durable is the disk as the ledger and the effects see it: the few
// operations that have to be right for a record or an effect to outlive a
// crash, and the rules for using them.
//
//   - Bytes are durable after Sync of their file returned nil, and a name is
//     durable after SyncDir of its directory did. Neither implies the other.
//   - After a failed Sync nothing is known of the bytes written before it, and
//     a later Sync that succeeds says nothing of them. The caller must stop.
//   - A write may be cut short by a full disk. The caller cuts the file back.
//   - What cannot be solved here: a device that acknowledges a flush and loses
//     it. The chain shows the loss afterwards, it does not prevent it.
//
// Links are never followed at the last element of a path, and what is no
// regular file of this user with one link is refused.
package durable

import (
	"context"
	"io"
	"io/fs"
	"time"
)

// FS is a file system. Its methods may be called at once from several
// goroutines. Errors for absent and existing names are fs.ErrNotExist and
// fs.ErrExist, as errors.Is understands them.
type FS interface {
	// MkdirAll makes path a directory of mode 0700, and reports whether it had
	// to be created. Parents are created too. Its name is durable on return.
	MkdirAll(path string) (created bool, err error)

	// Open opens a regular file for reading and appending. With create, it is
	// created with mode 0600 where absent; its name is then durable after
	// SyncDir.
	Open(path string, create bool) (File, error)

	// Lstat tells of the last element of path, not of what it links to.
	Lstat(path string) (Info, error)

	// ReadDir lists the names in a directory, sorted.
	ReadDir(path string) ([]string, error)

	// ReadFile reads a regular file of at most limit bytes whole.
	ReadFile(path string, limit int64) ([]byte, error)

	// Rename moves a file to a name that must not exist.
	Rename(from, to string) error

	// Remove removes a file's name.
	Remove(path string) error

	// Stage begins a file that is in no directory that a reader looks at. It is
	// given a name of directory dir by Publish, or is gone.
	Stage(dir string) (Staged, error)

	// SyncDir makes the names in a directory durable.
	SyncDir(path string) error

	// Lock opens the lock file at path, created with mode 0600 where absent.
	Lock(path string) (Lock, error)
}

// File is an open file. Its methods but Close may be called at once.
type File interface {
	io.ReaderAt
	// Append writes p at the end of the file. Where it returns an error, n
	// bytes of p may be there.
	Append(p []byte) (n int, err error)
	// WriteAt overwrites in place.
	WriteAt(p []byte, off int64) (n int, err error)
	Truncate(size int64) error
	Sync() error
	Stat() (Info, error)
	// Chmod sets the permission bits.
	Chmod(mode fs.FileMode) error
	Close() error
}

// Staged is a file without a name. Exactly one of Publish and Discard ends it.
type Staged interface {
	Append(p []byte) (n int, err error)
	Sync() error
	// Publish gives the file the name path, in the directory given to Stage.
	// It never replaces a file: the error is then fs.ErrExist. The name is
	// durable after SyncDir.
	Publish(path string) error
	Discard() error
}

// Lock is one opening of a lock file. Two openings exclude each other also
// inside one process; one opening is not for two goroutines at once, but for
// LockRange.
type Lock interface {
	// Exclusive waits until nobody else holds the lock in any way.
	Exclusive(ctx context.Context) error
	// Shared waits until nobody else holds it exclusively.
	Shared(ctx context.Context) error
	Unlock() error

	// LockRange waits until nobody else holds slot, one of 2^62, which is apart
	// from Exclusive and Shared. The caller sees to it that one opening asks
	// for a slot once at a time. Where the platform has no such locks between
	// processes, SoleProcess is true and it only returns.
	LockRange(ctx context.Context, slot uint64) (unlock func(), err error)
	// TryLockRange is LockRange where nobody else holds slot; else ok is false.
	TryLockRange(slot uint64) (unlock func(), ok bool, err error)
	// SoleProcess reports that only one process may use the directory, since
	// slots cannot be locked between processes.
	SoleProcess() bool

	// Holder is what was last written by SetHolder, by anyone.
	Holder() string
	// SetHolder writes who holds the lock, for people to read.
	SetHolder(text string)
	Close() error
}

// FileID tells files apart while they are open.
type FileID struct{ Dev, Ino uint64 }

// Info is what a caller may rely on about a file.
type Info struct {
	ID      FileID
	Size    int64
	Links   uint64
	Mode    fs.FileMode // type and permission bits
	Foreign bool        // owned by another user

	Modified time.Time // of the content
}

// Check is the reason why a file must not be used as a file of the ledger.
func (i Info) Check() error {
	switch {
	case !i.Mode.IsRegular():
		return errorString("it is no regular file (" + i.Mode.Type().String() + ")")
	case i.Foreign:
		return errorString("it belongs to another user")
	case i.Links > 1:
		return errorString("it has a second name (hard link)")
	}
	return nil
}

type errorString string

func (e errorString) Error() string { return string(e) }

// holderSize is the length of what SetHolder writes, so that one write in
// place replaces the text before.
const holderSize = 128
