// Package snapshot writes down the state of files, and tells two states apart.
// It opens files to read only, needs no network, and follows no link below the
// paths that it is given.
//
// This comment is the specification of the format.
//
// # Lines
//
// A snapshot is text: lines of canonical JSON by the rules of package canon,
// each an object followed by one "\n". The first line is the header, the last
// one the end, and between them stands one line for each entry. A line is at
// most MaxLine bytes long. What lacks its end is no snapshot.
//
//	{"base":"/srv","format":"auditledger/snapshot","max_size":1048576,"roots":["data"],"ts":1769868242000000000,"version":1}
//	{"mtime_ns":1769868240123456789,"path":"data","state":"exists","type":"dir"}
//	{"mtime_ns":1769868240999999931,"path":"data/a.txt","sha256":"2cf2…","size":5,"state":"exists","type":"file"}
//	{"path":"data/gone/","reason":"permission denied","state":"unknown"}
//	{"entries":3,"sha256":"9a0b…"}
//
// # Header
//
//	base      the directory from which relative paths are taken; absent where it was not told
//	format    "auditledger/snapshot"
//	max_size  files larger than so many bytes were not hashed; absent where there was no such limit
//	roots     the paths that were looked at, sorted, none of them inside another
//	ts        when it began, nanoseconds since 1970
//	version   1
//
// # Entries
//
//	path      always; the root as given, made shorter as path.Clean does, and below it "/" and names
//	state     always; exists, absent, unknown or left_out
//	type      where it exists: file, dir, link, pipe, socket, device or other
//	mtime_ns  where it exists: time of the last modification, exact, in nanoseconds since 1970
//	size      of a file, in bytes
//	sha256    of a file that was hashed: of its content, 64 lower-case hexadecimal digits
//	unhashed  of a file or link whose content is not known: unstable, too_large or unreadable
//	link      of a link: its target, as stored
//	reason    where it is not plain success: one line for people
//
// absent means that the system said so: no such name, or a parent that is no
// directory. Whatever else keeps from looking (no permission, too many links, an
// error of the disk) is unknown. Below a root, a name that was listed and then
// was gone is absent.
//
// A file has sha256 or unhashed, never both and never neither, and no weaker
// value ever stands in for a hash. unstable: it changed while it was looked at,
// so that size, time and content may belong to different moments. too_large: by
// rule, max_size. unreadable: it could not be read, and reason says why.
//
// Pipes, sockets and devices are not opened and never read. Links are recorded
// and not followed.
//
// A path that ends in "/" speaks of the names in a directory: they are not all
// known, so that what is not listed below it may be there all the same. ("//"
// for the names in "/".)
//
// mtime_ns is an integer of any size, and beyond 2^53 for every time after
// April 1970: a reader that holds numbers as binary64 sees changes that are
// none. Ours is exact.
//
// # Names that are not UTF-8
//
// A path, link, base or root that is not UTF-8 is written as its bytes in
// base64 (RFC 4648, with padding), in path_b64, link_b64, base_b64, and for
// roots as {"b64":…}. One that is UTF-8 is always written as text. So two names
// are never written alike, and each can be had back.
//
// # Order
//
// Entries stand in the strict order of the bytes of their paths, as sort gives
// it with LC_ALL=C: data, data.old, data/, data/a. Two snapshots are compared by
// reading both once.
//
// # End
//
// entries is how many entries there are, sha256 the hash of their lines, each
// with its "\n". It does not cover the header: where nothing changed, the end of
// two snapshots is the same.
//
// # A ledger's own files
//
// A directory that holds lock, audit.jsonl and head.json, all three of them
// files, is taken for that of a ledger. In it audit.jsonl, the segments, lock,
// head.json and torn are entries with the state left_out and the reason
// "ledger": they change with every record, and the verifier is there for them.
// All else in it is looked at, notes too. The file that a snapshot is written to
// is left out with the reason "snapshot". A root is looked at in any case.
//
// # How a file is looked at
//
// It is opened once, below its directory's own descriptor, without following a
// link and without waiting. Status and content come from that descriptor. Size,
// times of modification and of change, and identity are compared before and
// after the reading, and what was read with the size. A file whose size says
// less than it gives is not read past that size. Two cases cannot be seen: a
// rewrite of equal length between two looks within one tick of the file
// system's clock, and writes through a memory map that the system has not yet
// noted.
//
// # Differences
//
// Of each path in either snapshot, the first line that fits:
//
//	left_out      left out on one side at least: not compared. But a ledger's own file that was looked at on the other side is unknown.
//	unknown       unknown on one side, or not looked at there: outside of its roots, or below a directory whose names are not known
//	added         absent, then there
//	removed       there, then absent
//	type          of another type
//	unknown       a file without hash, or a link without target, on one side
//	link          the link has another target, whatever stands there
//	content       the hash differs, or (which cannot be) the size
//	time          only mtime_ns differs
//	same
//
// Mode, owner, extended attributes and holes are not looked at.
//
// # Memory
//
// It does not grow with the number of files, but with that of the names in one
// directory and those above it, and with the number of cores.
package snapshot
