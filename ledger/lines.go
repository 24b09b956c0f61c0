package ledger

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Lines reads a stream line by line, without a limit on a line's length. It
// is not safe for concurrent use.
type Lines struct {
	r    *bufio.Reader
	long []byte
	line []byte
	off  int64 // where the next line begins
	at   int64
	torn bool
	err  error
}

// NewLines reads from r, whose first byte is at offset start of its file.
func NewLines(r io.Reader, start int64) *Lines {
	return &Lines{r: bufio.NewReaderSize(r, 256<<10), off: start}
}

// Next advances to the next line and reports whether there is one. After
// false, Err says whether the stream ended or failed.
func (l *Lines) Next() bool {
	if l.err != nil {
		return false
	}
	l.long = l.long[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		switch {
		case err == nil && len(l.long) == 0:
			l.line = part[:len(part)-1]
			l.at, l.off = l.off, l.off+int64(len(part))
			return true
		case err == nil || errors.Is(err, io.EOF):
			l.long = append(l.long, part...)
			l.at, l.off = l.off, l.off+int64(len(l.long))
			l.torn = err != nil
			if l.torn {
				l.err = io.EOF
			}
			l.line = bytes.TrimSuffix(l.long, []byte{'\n'})
			return len(l.long) > 0
		case errors.Is(err, bufio.ErrBufferFull):
			l.long = append(l.long, part...)
		default:
			l.err = err
			return false
		}
	}
}

// Line is the current line without its "\n". It is valid until Next.
func (l *Lines) Line() []byte { return l.line }

// Offset is where the current line begins.
func (l *Lines) Offset() int64 { return l.at }

// End is where the current line ends, after its "\n".
func (l *Lines) End() int64 { return l.off }

// Torn reports whether the current line lacks its "\n", and so is the last.
func (l *Lines) Torn() bool { return l.torn }

// Err is the error that ended the stream; nil where it simply ended.
func (l *Lines) Err() error {
	if errors.Is(l.err, io.EOF) {
		return nil
	}
	return l.err
}
