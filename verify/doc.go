// Package verify checks audit ledgers. It shares the format with the writer
// (packages ledger and canon) and no code that writes; it opens files to read
// only, creates nothing, and needs no network.
//
// This comment is the specification of what it says.
//
// # What is checked
//
// Each line must be a record in canonical form whose sha256 is the hash of its
// own bytes, and which names the hash of the record before it. That holds
// within a file and across the files of a ledger, in the order of their names.
// A file's sequence numbers must follow where records bear them. What others
// know of the ledger (head.json, an expected head or count, anchors) must be
// in the chain.
//
// # Verdicts
//
//	anchored   0  the chain is whole, and every anchor that was asked agrees
//	intact     0  the chain is whole; nothing proves that it is complete
//	tampered   1  there is at least one fault
//	unchecked  3  nothing, or not all, could be checked: absent, empty, unreadable
//	torn       4  the chain is whole up to an unfinished last line
//
// The worst holds: tampered, unchecked, torn, intact, anchored. The number is
// the exit status. Whatever is not named here has the status of tampered.
//
// # Faults
//
//	malformed      a line is no record: not JSON, no object, a member missing or of a wrong
//	               type, blank, a doubled key, longer than MaxLine; an archive cut or dirty
//	not_canonical  a record in other bytes than the canonical ones
//	altered        a record's own hash does not match its bytes
//	missing        the record that a line is linked to is not in the ledger
//	duplicated     the record stood before already
//	inserted       records stand between a line and the one that it is linked to
//	reordered      a line is linked to one that comes later
//	misnumbered    seq does not follow
//	truncated      something knows more records than there are
//	forked         something knows another record at that seq
//
// A fault is placed at the line where the chain does not fit, which is the
// changed line or the record after it. One change makes one fault: what only
// follows from a fault already told is left out. In detail:
//
//   - A line that does not end in "\n" is no record. At the end of the last file
//     it makes the verdict torn; at the end of an earlier one it is malformed.
//   - The values of a record that is not canonical are read from its canonical
//     form. If they hash to its sha256, it is not altered.
//   - The record after an altered one may be linked to the stored hash or to the
//     hash of the bytes. The link and the seq of an altered record say nothing.
//   - A link that leads nowhere just after malformed lines is explained by them,
//     unless the numbers show that more is gone than they can have been.
//   - Only a record whose own hash is right explains a link that does not fit. Its
//     place is found by a second reading of the files, or in the memory of the
//     first 4 million lines of a stream.
//   - seq is judged only where no fault of the link explains it.
//
// # Live ledgers
//
// A directory is read up to a stable point: the sizes of its segments and the
// content of head.json, taken under a shared lock on the file lock, which is
// held for that moment only. What comes later is not looked at. A file that
// ends before its stable point while it is read is truncated.
//
// # Memory
//
// Memory does not grow with the ledger: each worker holds one block; the
// longest line is held once; faults, open intents and remembered hashes have
// caps, and what is past a cap is counted.
package verify
