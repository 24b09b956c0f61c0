package snapshot

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

// MaxLine is the length in bytes of the longest line of a snapshot.
const MaxLine = 1 << 20

const format = "auditledger/snapshot"

// A Header is the first line of a snapshot.
type Header struct {
	Base    string // "" where it was not told
	MaxSize int64  // 0 for no limit
	Roots   []string
	TS      int64 // nanoseconds since 1970
}

// Append appends h as canonical JSON, without a newline.
func (h *Header) Append(dst []byte) []byte {
	dst = append(dst, '{')
	if h.Base != "" {
		dst = append(appendText(dst, "base", h.Base), ',')
	}
	dst = append(dst, `"format":"`+format+`"`...)
	if h.MaxSize > 0 {
		dst = strconv.AppendInt(append(dst, `,"max_size":`...), h.MaxSize, 10)
	}
	dst = append(dst, `,"roots":[`...)
	for i, r := range h.Roots {
		if i > 0 {
			dst = append(dst, ',')
		}
		if utf8.ValidString(r) {
			dst = canon.AppendString(dst, r)
			continue
		}
		dst = base64.StdEncoding.AppendEncode(append(dst, `{"b64":"`...), []byte(r))
		dst = append(dst, `"}`...)
	}
	dst = strconv.AppendInt(append(dst, `],"ts":`...), h.TS, 10)
	return append(dst, `,"version":1}`...)
}

func parseHeader(line []byte) (Header, error) {
	v, err := canon.Parse(line)
	if err != nil {
		return Header{}, err
	}
	get := func(key string) canon.Value { m, _ := v.Get(key); return m }
	if get("format").Str() != format {
		return Header{}, errors.New("this is no snapshot")
	}
	if n, ok := get("version").Int(); !ok || n != 1 {
		return Header{}, errors.New("this is a snapshot of a version that this program does not know")
	}
	h := Header{Base: get("base").Str()}
	if b, ok := v.Get("base_b64"); ok {
		h.Base, _ = decode64(b.Append(nil))
	}
	h.MaxSize, _ = get("max_size").Int()
	h.TS, _ = get("ts").Int()
	for r := range get("roots").Elems() {
		text := r.Str()
		if b, ok := r.Get("b64"); ok {
			text, _ = decode64(b.Append(nil))
		}
		h.Roots = append(h.Roots, text)
	}
	if !bytes.Equal(h.Append(nil), line) {
		return Header{}, errors.New("the header is not in the form in which it is written")
	}
	if roots, err := rootsOf(h.Roots); err != nil || !slices.Equal(roots, h.Roots) {
		return Header{}, errors.New("the header's roots are not as they are written")
	}
	return h, nil
}

// covers reports whether a walk of the roots may come to the entry at p.
func (h *Header) covers(p string) bool {
	for _, r := range h.Roots {
		if p == r || p == r+"/" {
			return true
		}
		rest, ok := strings.CutPrefix(p, below(r))
		if !ok {
			continue
		}
		for name := range strings.SplitSeq(strings.TrimSuffix(rest, "/"), "/") {
			if name == "" || name == "." || name == ".." {
				return false
			}
		}
		return true
	}
	return false
}

// A Reader reads a snapshot, strictly: what it accepts has one form.
type Reader struct {
	Header Header

	lines *bufio.Scanner
	line  int
	last  string
	h     hash.Hash
	n     int64
	sum   ledger.Hash
}

// NewReader reads the header from r.
func NewReader(r io.Reader) (*Reader, error) {
	s := &Reader{lines: bufio.NewScanner(r), h: sha256.New()}
	s.lines.Buffer(make([]byte, 64<<10), MaxLine)
	s.lines.Split(wholeLines)
	line, err := s.next()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty, and no snapshot")
	}
	if err == nil {
		s.Header, err = parseHeader(line)
	}
	if err != nil {
		return nil, s.fail(err)
	}
	return s, nil
}

// wholeLines is a bufio.SplitFunc for lines that end in "\n", which is left out.
func wholeLines(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, errors.New("the last line is cut off")
	}
	return 0, nil, nil
}

func (s *Reader) next() ([]byte, error) {
	s.line++
	if s.lines.Scan() {
		return s.lines.Bytes(), nil
	}
	switch err := s.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("a line of more than %d bytes", MaxLine)
	case err != nil:
		return nil, err
	}
	return nil, io.EOF
}

func (s *Reader) fail(err error) error { return fmt.Errorf("line %d: %w", s.line, err) }

// Next is the next entry, or io.EOF after the end of a whole snapshot. After an
// error nothing that was read before counts.
func (s *Reader) Next() (Entry, error) {
	line, err := s.next()
	if errors.Is(err, io.EOF) {
		err = errors.New("the snapshot is cut off: its end is missing")
	}
	if err != nil {
		return Entry{}, s.fail(err)
	}
	if bytes.HasPrefix(line, []byte(`{"entries":`)) {
		s.h.Sum(s.sum[:0])
		if string(line) != fmt.Sprintf(`{"entries":%d,"sha256":"%s"}`, s.n, s.sum) {
			return Entry{}, s.fail(errors.New("the end does not fit the entries: some were changed, added or removed"))
		}
		if _, err := s.next(); !errors.Is(err, io.EOF) {
			return Entry{}, s.fail(errors.New("something follows the end"))
		}
		return Entry{}, io.EOF
	}
	e, err := ParseEntry(line)
	switch {
	case err != nil:
		return Entry{}, s.fail(err)
	case e.Path <= s.last:
		return Entry{}, s.fail(errors.New("the entries are not in order"))
	case !s.Header.covers(e.Path):
		return Entry{}, s.fail(errors.New("the entry lies in none of the roots"))
	}
	s.last = e.Path
	s.n++
	s.h.Write(line)
	s.h.Write([]byte{'\n'})
	return e, nil
}

// Sum is the hash of the entries, once Next has come to the end.
func (s *Reader) Sum() ledger.Hash { return s.sum }
