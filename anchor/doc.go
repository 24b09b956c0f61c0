// Package anchor keeps the head of a ledger where the owner of the ledger's
// machine cannot change it, and finds out later whether the ledger still has
// what was kept. It knows no network: a Sink does the keeping.
//
// This comment is the specification of what is kept.
//
// # Statements
//
// A statement is canonical JSON (package canon) without a newline, one object
// of the sink:
//
//	{"ledger":"<64 hex>","previous":"<64 hex>","records":N,"seq":N,"sha256":"<64 hex>","tool":"…","ts":N}
//
//	ledger    sha256 of the ledger's first record: which ledger it is
//	previous  SHA-256 of the bytes of the statement before it; 64 zeros in the first
//	records   how many records there were: as many as seq
//	seq       position of the last record
//	sha256    its hash: seq and sha256 are one pair, taken under the ledger's shared lock
//	tool      what made it, with its version
//	ts        wall clock, nanoseconds since 1970
//
// There are no other members, and one statement has one spelling.
//
// # Keys
//
//	<prefix>/<ledger>/<seq in 20 digits>-<first 16 digits of sha256>.json
//	<prefix>/<ledger>/<seq in 20 digits>-<first 16 digits of sha256>_<ts in 20 digits>.json
//
// The second is a heartbeat: a further statement of a head that was stated
// before. "_" sorts after ".", so that keys in the order of their bytes are
// statements in the order of their making. One prefix belongs to one ledger.
// Below <prefix>/check/ are the trial objects of "anchor check", which say
// nothing.
//
// # The word
//
// An object of the sink may have versions. The word at a key is its oldest
// version that has a lock: nobody can have changed it while the lock held, and
// what was laid over it later does not count. Versions that differ from the
// word, delete markers, missing, weak and ended locks, statements that do not
// chain and statements of other ledgers are findings (see Kind).
//
// # Receipts
//
// The file anchors.jsonl beside the ledger has one line of canonical JSON for
// each statement that was kept and read back:
//
//	{"key":…,"ledger":…,"line":N,"mode":…,"offset":N,"segment":…,"seq":N,"sha256":…,"sink":URL,
//	 "statement":<SHA-256 of its bytes>,"ts":N,"until":<seconds since 1970>,"version":…}
//
// segment, line and offset say where the record stood. Receipts prove nothing:
// they lie on the ledger's machine. They save push the way to the last anchor,
// and Look compares them with the sink, so that an anchor that vanished is
// missed. Without them, push takes longer, and that is all.
//
// The file anchor-run.json beside them says when anchoring was last tried and
// last went well, as {"last_run":NS,"last_success":NS} in 96 bytes: a push that
// failed has no receipt. It is for monitors, and proves nothing either.
package anchor
