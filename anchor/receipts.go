package anchor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

// ReceiptsName is the file of receipts in a ledger directory.
const ReceiptsName = "anchors.jsonl"

// A Receipt says that a statement was kept, and where its record stood.
type Receipt struct {
	Sink      string
	Key       string
	Version   string
	Statement ledger.Hash // digest of its bytes
	Ledger    ledger.Hash
	Mark            // where the record stood
	Mode      Mode  // as read back
	Until     int64 // seconds since 1970; 0 without end
	TS        int64 // of the statement
}

// Lock is the lock as it was read back.
func (r Receipt) Lock() Lock {
	l := Lock{Mode: r.Mode}
	if r.Until != 0 {
		l.Until = time.Unix(r.Until, 0)
	}
	return l
}

func receiptOf(sink string, a Anchor, m Mark) Receipt {
	r := Receipt{Sink: sink, Key: a.Key, Version: a.Version, Statement: a.Digest, Ledger: a.Ledger, Mark: m, Mode: a.Lock.Mode, TS: a.TS}
	if !a.Lock.Until.IsZero() {
		r.Until = a.Lock.Until.Unix()
	}
	return r
}

func (r Receipt) line() []byte {
	b := []byte(`{"key":`)
	b = canon.AppendString(b, r.Key)
	b = fmt.Appendf(b, `,"ledger":"%s","line":%d,"mode":`, r.Ledger, r.Line)
	b = canon.AppendString(b, string(r.Mode))
	b = fmt.Appendf(b, `,"offset":%d,"segment":`, r.Offset)
	b = canon.AppendString(b, r.Segment)
	b = fmt.Appendf(b, `,"seq":%d,"sha256":"%s","sink":`, r.Head.Seq, r.Head.Sum)
	b = canon.AppendString(b, r.Sink)
	b = fmt.Appendf(b, `,"statement":"%s","ts":%d,"until":%d,"version":`, r.Statement, r.TS, r.Until)
	b = canon.AppendString(b, r.Version)
	return append(b, '}', '\n')
}

func parseReceipt(line []byte) (Receipt, error) {
	v, err := canon.Parse(line)
	if err != nil {
		return Receipt{}, err
	}
	m := members{v: v}
	r := Receipt{Sink: m.text("sink"), Key: m.text("key"), Version: m.text("version"), Statement: m.hash("statement"), Ledger: m.hash("ledger"),
		Mark: Mark{Head: ledger.Head{Seq: m.count("seq"), Sum: m.hash("sha256")}, Segment: m.text("segment"), Line: m.int("line"), Offset: m.int("offset")},
		Mode: Mode(m.text("mode")), Until: m.int("until"), TS: m.int("ts")}
	if m.wrong != "" {
		return Receipt{}, fmt.Errorf("member %s is missing or of a wrong type", m.wrong)
	}
	return r, nil
}

// ReadReceipts reads a file of receipts; a file that is not there has none.
// Lines that are no receipts are left out and told in the error, beside the
// others; a last line without its newline is left out silently.
func ReadReceipts(path string) ([]Receipt, error) {
	f, err := openFile(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the receipts: %w", err)
	}
	defer f.Close()
	return readReceipts(f, path)
}

// maxReceipts is how long a file of receipts may be to be read: that of an
// hourly push grows by some 6 MiB a year.
const maxReceipts = 256 << 20

func readReceipts(f *os.File, path string) ([]Receipt, error) {
	if info, err := f.Stat(); err != nil || info.Size() > maxReceipts {
		return nil, errors.Join(fmt.Errorf("read the receipts: %s has more than %d bytes; receipts are a cache: move it away, and the next push begins another", path, maxReceipts), err)
	}
	var all []Receipt
	var bad error
	lines := ledger.NewLines(io.LimitReader(f, maxReceipts), 0)
	for n := 1; lines.Next() && !lines.Torn(); n++ {
		r, err := parseReceipt(lines.Line())
		if err != nil {
			if bad == nil {
				bad = fmt.Errorf("line %d of %s is no receipt: %w", n, path, err)
			}
			continue
		}
		all = append(all, r)
	}
	if err := lines.Err(); err != nil {
		return all, fmt.Errorf("read the receipts: %w", err)
	}
	return all, bad
}

// openFile opens a regular file, and nothing else: to open a pipe could wait for
// ever, and to read a device never end.
func openFile(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|openFlags, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(fmt.Errorf("%s is no regular file", path), err)
	}
	return f, nil
}

// A book is the file of receipts while one push has it: another push, of this
// process or another, waits.
type book struct {
	f        *os.File
	path     string
	receipts []Receipt
	bad      error // lines that are none
}

func openBook(ctx context.Context, path string) (*book, error) {
	f, err := openFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return nil, fmt.Errorf("open the receipts: %w; nothing was anchored, since it could not be noted", err)
	}
	b := &book{f: f, path: path}
	if err := lockFile(ctx, f); err != nil {
		f.Close()
		return nil, fmt.Errorf("wait for another push that has %s: %w", path, err)
	}
	b.receipts, b.bad = readReceipts(f, path)
	return b, nil
}

// last is the receipt of the highest seq, the latest of them, or nil.
func (b *book) last(sink string, id ledger.Hash) *Receipt {
	var best *Receipt
	for i := range b.receipts {
		r := &b.receipts[i]
		if r.Sink == sink && r.Ledger == id && (best == nil || r.Key >= best.Key) {
			best = r
		}
	}
	return best
}

// add appends a receipt durably.
func (b *book) add(r Receipt) error {
	line := r.line()
	// A line that a crash left unfinished is ended, and is then no receipt.
	if info, err := b.f.Stat(); err == nil && info.Size() > 0 {
		var end [1]byte
		if _, err := b.f.ReadAt(end[:], info.Size()-1); err != nil {
			return fmt.Errorf("read the receipts: %w", err)
		}
		if end[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	created := len(b.receipts) == 0
	if _, err := b.f.Write(line); err != nil {
		return fmt.Errorf("write the receipt: %w", err)
	}
	if err := b.f.Sync(); err != nil {
		return fmt.Errorf("write the receipt: %w", err)
	}
	if created {
		if err := syncDir(filepath.Dir(b.path)); err != nil {
			return fmt.Errorf("write the receipt: %w", err)
		}
	}
	b.receipts = append(b.receipts, r)
	return nil
}

func (b *book) close() { b.f.Close() }

// knows reports whether a statement has a receipt.
func (b *book) knows(sink string, a Anchor) bool {
	for i := range b.receipts {
		r := &b.receipts[i]
		if r.Sink == sink && r.Key == a.Key && r.Version == a.Version && bytes.Equal(r.Statement[:], a.Digest[:]) {
			return true
		}
	}
	return false
}
