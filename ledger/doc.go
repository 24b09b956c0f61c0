// Package ledger defines the record of an audit ledger, the chain that links
// records, and the files of a ledger directory. It reads; the only writer is
// the package store beneath it.
//
// This comment is the specification. FORMAT.md says the same at length, with a
// verifier in Python.
//
// # Lines
//
// A ledger is a sequence of records. A record is one line: a JSON object in
// the canonical form of package canon, followed by one "\n". There is nothing
// between lines, before the first or after the last. A line is at most
// 64 MiB long, and a writer stays far below that.
//
// # Chain
//
// Each record carries prev_sha256, the sha256 of the record before it (64
// zeros in the first record), and its own sha256:
//
//	sha256 = hex(SHA-256(prev_sha256 || body))
//
// where prev_sha256 is taken as its 64 lower-case ASCII digits and body is the
// line as stored, without its "\n" and without its sha256 member: the bytes
// from the opening quote of "sha256" up to and including the comma after its
// value are cut out. The member ts is in every record and sorts after sha256,
// so that comma is always there. Nothing is decoded or encoded to hash.
//
// # Members
//
//	member       type    presence  meaning
//	ts           int64   always    wall clock, nanoseconds since 1970, as read: it may step back
//	request_id   string  always    the caller's id; "missing" where absent, "observe" for reads
//	method       string  always    "tools/call", or "ledger/…" for the ledger's own events
//	name         string  always    the tool as called
//	decision     string  always    "allow", "deny", "pending", "void"
//	outcome      string  always    "committed", "replay", "observed", "error", "not_executed", "intent"
//	args_digest  string  always    SHA-256 of the canonical arguments, hex
//	prev_sha256  string  always    the link, 64 lower-case hex digits
//	sha256       string  always    the record's own hash, 64 lower-case hex digits
//	seq          int     optional  position in the ledger, 1, 2, 3 … over all segments
//	intent       string  optional  sha256 of the intent record that this record speaks of
//	policy       string  optional  SHA-256 of the policy file in force, hex
//	reason       string  optional  a word of the set in reason.go
//	rule         string  optional  with reason "argument_rule": which rule, "text.max_len"
//	open         array   optional  of a seal record: the intents that are open before it
//	targets      array   optional  what was seen of the call's targets, before and after: see below
//	trace_id     string  optional  of the W3C trace that the call was part of, 32 lower-case hex digits
//
// Members that are not in the table are kept and covered by the hash. A member
// whose name differs from one of the table only by letter case is refused: two
// readers could take it for one another.
//
// # Decisions
//
// "deny" says that nothing was touched. "pending" with outcome "intent" is an
// intent: a mutation that is about to happen. A later record whose intent
// member names it, with decision "allow" (the effect is durable) or "void" (it
// is known not to have happened), closes it; a "pending" record with outcome
// "error" tells of a failure and leaves it open. An intent that nothing closes
// is in doubt.
//
// # Targets
//
// Where the policy names arguments of a tool that are paths, the records of its
// calls say in targets what stood there, one element for each path:
//
//	argument   the name of the argument
//	path       its value; absent where it is none, or too long
//	before     what stood there when the call came in
//	after      what stood there when this record was about to be written; absent in an intent
//	unchanged  true, false, or null where that cannot be told; absent in an intent
//
// before and after are objects with state ("exists", "absent", "unknown", or
// "not_looked_at" by a rule or limit), reason where it is not plain success, and
// where it exists type ("file", "dir", "link", "pipe", "socket", "device",
// "other"), mtime_ns, of a file size and sha256, of a link link or link_b64, of a
// directory entries and sha256, and unhashed where sha256 or link is wanting.
// Package verify/snapshot specifies them.
//
// # Segments
//
// A ledger directory holds its chain in segments: audit.jsonl grows, and the
// sealed ones before it are named audit-N.jsonl by the position of their first
// record in 20 digits, with .zst behind where they are compressed. The chain
// and the positions go on over the segments. The first record after a seal has
// the method ledger/seal, the name of the segment before it, and in open the
// intents that are open there, each an object with args_digest, name, policy,
// request_id, seq, sha256 and ts of its intent record; its arguments, for
// args_digest, are {"segment":NAME}.
package ledger
