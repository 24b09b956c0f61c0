// Package store is the only writer of a ledger directory.
//
// # What is durable when
//
// Append returns after the record is on the disk. The records of callers that
// arrive while a batch is being written form the next batch: one write, one
// sync, and each caller is released with its own position. The cost of a
// record does not depend on the size of the ledger.
//
// Reading the head, hashing, writing and syncing are one critical section. It
// is exclusive inside the process by a mutex and between processes by a lock
// on the file "lock". What other processes appended meanwhile is read, checked
// and followed before anything is written after it.
//
// # When it stops
//
// Before each batch the open file is compared with the path and with the size
// last seen. A renamed, replaced, linked or shrunk file stops the writer for
// good, and so does a failed sync: nothing is known of the bytes any more, and
// only opening again, which reads them, can tell. A short write (a full disk)
// fails its batch alone: the file is cut back to the last whole record and the
// next batch may succeed.
//
// # Opening
//
// Open checks every record of the active segment, and compares the count and
// the head with head.json, which is overwritten in place after each sync and
// never itself synced: it may be old, never ahead. A fault, or fewer records
// than head.json knows, refuses to open: new records must not lie on top of a
// broken chain, nor hide that its tail was cut.
//
// What a crash leaves after the last whole record is repaired by the same code
// that follows other processes, at any time: a whole record that lacks its
// newline gets it. Else the bytes are copied to torn/, cut off, and a record
// with method ledger/recovery names the copy. Bytes count as left by a crash
// where they are one line without its newline, or begin with a line that holds
// a zero byte, which no record does, and where head.json knows of none of them.
package store
