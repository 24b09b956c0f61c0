package verify

import (
	"time"

	"github.com/auditledger/auditledger/ledger"
)

// A Verdict is the outcome of a check.
type Verdict string

const (
	Anchored  Verdict = "anchored"
	Intact    Verdict = "intact"
	Torn      Verdict = "torn"
	Unchecked Verdict = "unchecked"
	Tampered  Verdict = "tampered"
)

// ExitCode is the exit status of a command with that verdict. A verdict that
// is not known counts as tampered.
func (v Verdict) ExitCode() int {
	switch v {
	case Anchored, Intact:
		return 0
	case Unchecked:
		return 3
	case Torn:
		return 4
	}
	return 1
}

func (v Verdict) rank() int {
	switch v {
	case Anchored:
		return 0
	case Intact:
		return 1
	case Torn:
		return 2
	case Unchecked:
		return 3
	}
	return 4
}

// Worse is the verdict that holds of two parts, one of which has a and the
// other b.
func Worse(a, b Verdict) Verdict {
	if b.rank() > a.rank() {
		return b
	}
	return a
}

// A Kind is a class of faults.
type Kind string

const (
	Malformed    Kind = "malformed"
	NotCanonical Kind = "not_canonical"
	Altered      Kind = "altered"
	Missing      Kind = "missing"
	Duplicated   Kind = "duplicated"
	Inserted     Kind = "inserted"
	Reordered    Kind = "reordered"
	Misnumbered  Kind = "misnumbered"
	Truncated    Kind = "truncated"
	Forked       Kind = "forked"
)

// Kinds is every Kind, in the order of the package comment.
func Kinds() []Kind {
	return []Kind{Malformed, NotCanonical, Altered, Missing, Duplicated, Inserted, Reordered, Misnumbered, Truncated, Forked}
}

// A Fault is something that cannot be in a ledger that nobody changed.
type Fault struct {
	Kind    Kind   `json:"kind"`
	Segment string `json:"segment"`
	Line    int64  `json:"line"`         // in the segment, from 1; 0 where it is the segment as a whole
	Seq     uint64 `json:"seq"`          // the record's, else the position that the line has
	Offset  int64  `json:"offset"`       // of the line, in bytes of the plain segment
	Detail  string `json:"detail"`       // for people
	TS      int64  `json:"ts,omitempty"` // of the record, or of the last one before it

	at int64 // the line's ordinal in the chain, to sort
}

// A Warning is something that an attentive reader wants to know and that
// changes no verdict.
type Warning struct {
	Kind    string `json:"kind"`
	Segment string `json:"segment,omitempty"`
	Line    int64  `json:"line,omitempty"`
	Seq     uint64 `json:"seq,omitempty"`
	TS      int64  `json:"ts,omitempty"`
	Detail  string `json:"detail"`
}

// Kinds of warnings.
const (
	WarnClock    = "clock_step"   // the wall clock was set back
	WarnDoubt    = "in_doubt"     // an intent that nothing closes
	WarnStale    = "stale_intent" // the same, for more than a day
	WarnStray    = "stray"        // a file that is no part of a ledger
	WarnMode     = "loose_mode"   // others may read or write it
	WarnHeadFile = "head_file"    // head.json could not be read
)

// A Position is a place in the chain.
type Position struct {
	Seq    uint64 `json:"seq"`
	SHA256 string `json:"sha256"`
}

func position(h ledger.Head) Position { return Position{Seq: h.Seq, SHA256: h.Sum.String()} }

// A Segment is what was read of one file.
type Segment struct {
	Name    string `json:"name"`
	First   uint64 `json:"first_seq"` // position of its first record; 0 where it has none
	Records uint64 `json:"records"`
	Bytes   int64  `json:"bytes"` // plain
	Zstd    bool   `json:"zstd,omitempty"`
}

// A TornLine is an unfinished last line.
type TornLine struct {
	Segment string `json:"segment"`
	Line    int64  `json:"line"`
	Offset  int64  `json:"offset"`
	Bytes   int64  `json:"bytes"`
	Whole   bool   `json:"whole"` // a record that only lacks its "\n"
}

// A Report is what was found.
type Report struct {
	Verdict         Verdict     `json:"verdict"`
	Records         uint64      `json:"records"` // that were read
	Head            Position    `json:"head"`    // the last of them
	AnchoredThrough uint64      `json:"anchored_through"`
	Anchors         int         `json:"anchors"` // how many agreed
	Faults          []Fault     `json:"faults"`
	FaultsTotal     int64       `json:"faults_total"` // also those past the cap
	Warnings        []Warning   `json:"warnings"`
	InDoubt         int         `json:"in_doubt"`
	InDoubtAtLeast  bool        `json:"in_doubt_at_least,omitempty"` // the cap on remembered intents was reached
	Segments        []Segment   `json:"segments"`
	Bytes           int64       `json:"bytes"`              // of plain text
	From            *Position   `json:"from,omitempty"`     // the trusted start
	FirstTS         int64       `json:"first_ts,omitempty"` // least and greatest wall clock seen
	LastTS          int64       `json:"last_ts,omitempty"`
	ClockSteps      int64       `json:"clock_steps"`
	Torn            *TornLine   `json:"torn,omitempty"`
	Stable          *Stable     `json:"stable_point,omitempty"`
	NotChecked      []string    `json:"not_checked"` // what was not looked at, and why
	Notes           []string    `json:"notes"`
	Checkpoint      *Checkpoint `json:"checkpoint,omitempty"` // of the last record, where the chain is whole
	Source          string      `json:"source"`
}

// A Stable is the point up to which a directory was read.
type Stable struct {
	Segment string    `json:"segment"`
	Offset  int64     `json:"offset"`
	Time    time.Time `json:"time"`
	Locked  bool      `json:"locked"` // taken under the shared lock
	Held    bool      `json:"-"`      // a writer kept the lock: what it wrote last may not be durable
}

// A Claim is what someone else knows: an anchor's statement that the record
// numbered Head.Seq has the hash Head.Sum.
type Claim struct {
	Source string
	Head   ledger.Head
}

// Options say what to check. The zero value checks the ledger by itself.
type Options struct {
	ExpectHeads   []ledger.Hash // these records must be in the chain
	ExpectRecords *uint64       // at least as many records must be in the chain
	Anchors       []Claim       // each must be in the chain; if there is one, the verdict may be Anchored
	From          *Checkpoint   // begin at this record, which the caller trusts

	MaxFaults int                     // how many are told; 10,000 if 0. All are counted.
	Workers   int                     // GOMAXPROCS if 0
	Progress  func(done, total int64) // bytes read of how many, 0 if not known; must be quick
	Now       func() time.Time

	blockSize, maxLine, maxIntents, maxMemory int // for tests
	lockWait                                  time.Duration
}

// MaxLine is how long a line may be to be looked at. No writer of this project
// writes one that is nearly as long.
const MaxLine = 64 << 20

func (o Options) withDefaults() Options {
	def := func(p *int, n int) {
		if *p <= 0 {
			*p = n
		}
	}
	def(&o.MaxFaults, 10000)
	def(&o.Workers, workers())
	def(&o.blockSize, 256<<10)
	def(&o.maxLine, MaxLine)
	def(&o.maxIntents, 1<<18)
	def(&o.maxMemory, 4<<20)
	if o.lockWait == 0 {
		o.lockWait = lockWait
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}
