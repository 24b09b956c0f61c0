package verify

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/auditledger/auditledger/ledger"
)

// Since limits what a text tells of, never what was checked. Faults and
// warnings of records before it are left out, and how many they are is said.
// The zero Since leaves out nothing.
type Since struct {
	Seq  uint64
	Time time.Time
}

func (s Since) hides(seq uint64, ts int64) bool {
	if s.Seq > 0 && seq > 0 && seq < s.Seq {
		return true
	}
	return !s.Time.IsZero() && ts != 0 && ts < s.Time.UnixNano()
}

// causes says what may be behind a fault.
var causes = map[Kind]string{
	Malformed:    "a line was overwritten, cut, or added by something that is not the writer; or the disk lost it",
	NotCanonical: "the file was edited, or went through a tool that writes JSON or line ends anew",
	Altered:      "the record was edited after it was written",
	Missing:      "records were removed before this line, or the record before it was rewritten with a new hash",
	Duplicated:   "lines were copied, or a backup was put together twice",
	Inserted:     "records were added by something else than the writer; or two writers had no common lock",
	Reordered:    "lines were moved or sorted",
	Misnumbered:  "a writer lost count, or records were made by something else than the writer",
	Truncated:    "records were cut off at the end, or an older copy was put back",
	Forked:       "the ledger was rewritten since, or is a copy that went on by itself",
}

// meanings says what a verdict means.
var meanings = map[Verdict]string{
	Anchored:  "the chain is whole, and the anchors agree with it",
	Intact:    "the chain is whole: nothing in it was changed, removed from its middle, or put in",
	Torn:      "the chain is whole up to an unfinished last line, which is no record: a crash while it was written, or a cut",
	Unchecked: "this proves nothing: not all could be checked",
	Tampered:  "this is not the ledger as it was written",
}

const howToProve = "completeness is not proven: records cut off the end leave a whole chain. Compare it with a head hash or a number of records\n" +
	"that was kept elsewhere (--expect-head, --expect-records), or with anchors (--anchors)."

// WriteText writes r for people: what was checked, up to where, what was not,
// what was found, and the verdict last. What the ledger says of itself is
// escaped.
func (r *Report) WriteText(out io.Writer, since Since) error {
	w := bufio.NewWriter(out)
	e := ledger.Escape
	fmt.Fprintf(w, "ledger    %s\n", e(r.Source))
	if len(r.Segments) > 1 || len(r.Segments) == 1 && r.Segments[0].Name != r.Source {
		for i, s := range r.Segments {
			if i == maxSegments && len(r.Segments) > maxSegments+1 {
				fmt.Fprintf(w, "          and %d more\n", len(r.Segments)-i)
				break
			}
			label := "         "
			if i == 0 {
				label = "segments "
			}
			fmt.Fprintf(w, "%s %s: %s, %s", label, e(s.Name), count(s.Records, "record"), size(s.Bytes))
			if s.First > 0 {
				fmt.Fprintf(w, ", from seq %d", s.First)
			}
			if s.Zstd {
				fmt.Fprint(w, ", compressed")
			}
			fmt.Fprintln(w)
		}
	}
	fmt.Fprintf(w, "checked   %s in %s", count(r.Records, "record"), size(r.Bytes))
	if n := len(r.Segments); n > 1 {
		fmt.Fprintf(w, ", %d segments", n)
	}
	fmt.Fprintln(w)
	if r.From != nil {
		fmt.Fprintf(w, "from      seq %d, sha256 %s, which the caller trusts\n", r.From.Seq, r.From.SHA256)
	}
	if r.Records > 0 {
		fmt.Fprintf(w, "up to     seq %d, sha256 %s\n", r.Head.Seq, r.Head.SHA256)
		fmt.Fprintf(w, "times     %s to %s\n", stamp(r.FirstTS), stamp(r.LastTS))
	}
	if s := r.Stable; s != nil {
		fmt.Fprintf(w, "stable    %s, byte %d, as of %s", e(s.Segment), s.Offset, s.Time.UTC().Format(time.RFC3339))
		if s.Locked {
			fmt.Fprint(w, ", under the lock")
		}
		fmt.Fprintln(w)
	}
	if r.Anchors > 0 {
		fmt.Fprintf(w, "anchors   %d agree, through seq %d; %s since\n", r.Anchors, r.AnchoredThrough, count(r.Head.Seq-min(r.AnchoredThrough, r.Head.Seq), "record"))
	}
	if t := r.Torn; t != nil {
		fmt.Fprintf(w, "torn      %s:%d, byte %d: %s without a newline", e(t.Segment), t.Line, t.Offset, size(t.Bytes))
		if t.Whole {
			fmt.Fprint(w, ", otherwise a record")
		}
		fmt.Fprintln(w)
	}
	for _, s := range r.NotChecked {
		fmt.Fprintf(w, "not checked: %s\n", s)
	}
	for _, s := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", s)
	}

	hidden := 0
	for _, x := range r.Warnings {
		if since.hides(x.Seq, x.TS) {
			hidden++
			continue
		}
		fmt.Fprintf(w, "warning: %s: ", x.Kind)
		if x.Segment != "" {
			fmt.Fprint(w, e(x.Segment))
			if x.Line > 0 {
				fmt.Fprintf(w, ":%d", x.Line)
			}
			if x.Seq > 0 {
				fmt.Fprintf(w, ", seq %d", x.Seq)
			}
			fmt.Fprint(w, ": ")
		}
		fmt.Fprintln(w, x.Detail)
	}
	if hidden > 0 {
		fmt.Fprintf(w, "%s before --since not shown\n", count(uint64(hidden), "warning"))
	}
	hidden = 0
	for _, f := range r.Faults {
		if since.hides(f.Seq, f.TS) {
			hidden++
			continue
		}
		fmt.Fprintf(w, "FAULT %s: %s", f.Kind, e(f.Segment))
		if f.Line > 0 {
			fmt.Fprintf(w, ":%d", f.Line)
		}
		fmt.Fprintf(w, ", seq %d, byte %d: %s\n", f.Seq, f.Offset, f.Detail)
		fmt.Fprintf(w, "      could be: %s\n", causes[f.Kind])
	}
	if hidden > 0 {
		fmt.Fprintf(w, "%s before --since not shown\n", count(uint64(hidden), "fault"))
	}
	if more := r.FaultsTotal - int64(len(r.Faults)); more > 0 {
		fmt.Fprintf(w, "and %s more\n", count(uint64(more), "fault"))
	}
	if r.InDoubt > 0 {
		least := ""
		if r.InDoubtAtLeast {
			least = "at least "
		}
		fmt.Fprintf(w, "in doubt  %s%s\n", least, count(uint64(r.InDoubt), "call"))
	}
	fmt.Fprintf(w, "\n%s: %s\n", strings.ToUpper(string(r.Verdict)), r.plain())
	return w.Flush()
}

// maxSegments is how many segments a text lists.
const maxSegments = 20

// plain is the verdict in words.
func (r *Report) plain() string {
	s := meanings[r.Verdict]
	if s == "" {
		s = meanings[Tampered]
	}
	switch r.Verdict {
	case Tampered:
		s += fmt.Sprintf(" (%s)", count(uint64(r.FaultsTotal), "fault"))
	case Intact, Anchored, Torn:
		s += fmt.Sprintf(" (%s", count(r.Records, "record"))
		if r.From != nil {
			s += fmt.Sprintf(", from seq %d on; what is before it was not looked at", r.From.Seq)
		}
		s += ")"
	}
	switch {
	case r.Verdict == Anchored && r.Head.Seq > r.AnchoredThrough:
		s += fmt.Sprintf("\nup to seq %d; that the %s since are all there is not proven.", r.AnchoredThrough, count(r.Head.Seq-r.AnchoredThrough, "record"))
	case r.Verdict == Intact, r.Verdict == Torn:
		s += "\n" + howToProve
	}
	return s
}

func count(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func size(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d bytes (%.1f MiB)", n, float64(n)/(1<<20))
	case n == 1:
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

func stamp(ts int64) string { return time.Unix(0, ts).UTC().Format("2006-01-02T15:04:05.000Z") }
