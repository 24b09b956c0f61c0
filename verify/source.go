package verify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
)

var (
	errSymlink    = errors.New("is a symbolic link")
	errNotRegular = errors.New("is not a regular file")
	errLockHeld   = errors.New("a writer holds the lock")
)

func workers() int { return runtime.GOMAXPROCS(0) }

func regular(f *os.File) (*os.File, os.FileInfo, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotRegular
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// A file is one part of a chain.
type file struct {
	name   string // as told
	path   string
	follow bool      // symbolic links: it was named by hand
	stream io.Reader // in place of path
	handle *os.File  // opened already, and not closed here
	limit  int64     // the stable size; -1 where it is whatever the file has
	first  uint64    // by its name; 0 if that does not say
	sealed bool      // must end at a line's end
	zstd   bool

	start, startLine int64 // where to begin: an offset and the lines before it
}

// A block is a run of whole lines of one file, but for what may lack its "\n"
// at the file's end.
type block struct {
	index int64 // over all files
	file  int
	off   int64  // of data in the plain file
	buf   []byte // headroom, data, padding
	n     int    // length of data

	last    bool  // of its file
	skipped int64 // length of a line past MaxLine, which is not in data
	whole   bool  // that line ends with "\n"
	err     error // ended the file: nothing after data could be read
	shrunk  bool  // the file ended before its stable size
	big     bool  // buf is the shared large buffer
}

func (b *block) data() []byte { return b.buf[headroom : headroom+b.n] }

// A source cuts files into blocks, in order. Its method next may be called by
// many; it gives each the work of reading its block.
type source struct {
	files     []*file
	blockSize int
	maxLine   int

	mu      sync.Mutex
	cur     int // index of the file being cut
	index   int64
	open    *opened
	scratch []byte
	carry   []byte // of a stream: the beginning of a line

	// Only one line longer than a block is in memory at a time.
	big    chan struct{}
	bigBuf []byte
}

// An opened file lives as long as somebody reads from it.
type opened struct {
	refs   atomic.Int32
	at     io.ReaderAt // nil for a stream
	stream io.Reader
	close  func()
	off    int64
	limit  int64
}

func (o *opened) release() {
	if o.refs.Add(-1) == 0 && o.close != nil {
		o.close()
	}
}

func newSource(files []*file, o Options) *source {
	s := &source{files: files, blockSize: o.blockSize, maxLine: o.maxLine, big: make(chan struct{}, 1)}
	s.scratch = make([]byte, min(4096, o.blockSize))
	return s
}

// close releases what next left open.
func (s *source) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != nil {
		s.open.release()
		s.open = nil
	}
	s.cur = len(s.files)
}

var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

func (s *source) openCur() (*opened, error) {
	f := s.files[s.cur]
	o := &opened{off: f.start, limit: f.limit}
	o.refs.Store(1)
	plain := f.stream
	if plain == nil {
		h := f.handle
		if h == nil {
			var info os.FileInfo
			var err error
			h, info, err = openFile(f.path, f.follow)
			if errors.Is(err, os.ErrNotExist) && f.sealed {
				// Sealed segments are compressed in the background.
				if z, zi, zerr := openFile(f.path+".zst", f.follow); zerr == nil {
					h, info, err = z, zi, nil
					f.zstd = true
				}
			}
			if err != nil {
				return nil, err
			}
			o.close = func() { h.Close() }
			if o.limit < 0 && !f.zstd {
				o.limit = info.Size()
			}
		}
		var magic [4]byte
		if n, _ := h.ReadAt(magic[:], 0); n == 4 && bytes.Equal(magic[:], zstdMagic) {
			f.zstd = true
		}
		if !f.zstd {
			o.at = h
			if o.limit < 0 {
				info, err := h.Stat()
				if err != nil {
					o.release()
					return nil, err
				}
				o.limit = info.Size()
			}
			return o, nil
		}
		plain = io.NewSectionReader(h, 0, 1<<62)
	} else {
		var magic [4]byte
		n, err := io.ReadFull(plain, magic[:])
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			plain = io.MultiReader(bytes.NewReader(magic[:n]), plain)
		} else {
			o.release()
			return nil, err
		}
		f.zstd = bytes.Equal(magic[:n], zstdMagic)
	}
	o.stream = plain
	if f.zstd {
		d, err := zstd.NewReader(plain, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			o.release()
			return nil, err
		}
		closeFile := o.close
		o.close = func() {
			d.Close()
			if closeFile != nil {
				closeFile()
			}
		}
		o.stream = d
	}
	if o.off > 0 {
		// A trusted start inside a stream: what is before it is decoded only.
		if _, err := io.CopyN(io.Discard, o.stream, o.off); err != nil {
			o.off = 0
			o.stream = &failed{err}
		}
	}
	return o, nil
}

type failed struct{ err error }

func (f *failed) Read([]byte) (int, error) { return 0, f.err }

// next fills b with the next block, using buf, which it may grow, if it is
// long enough. It returns false after the last block of the last file.
func (s *source) next(b *block, buf *[]byte) bool {
	s.mu.Lock()
	if s.cur >= len(s.files) {
		s.mu.Unlock()
		return false
	}
	*b = block{index: s.index, file: s.cur}
	s.index++
	if s.open == nil {
		o, err := s.openCur()
		if err != nil {
			b.err, b.last = err, true
			s.cur++
			s.mu.Unlock()
			return true
		}
		s.open = o
	}
	o := s.open
	b.off = o.off
	if o.at == nil {
		s.fill(b, o, buf)
		s.advance(b, o)
		s.mu.Unlock()
		return true
	}

	s.span(b, o)
	o.refs.Add(1)
	s.advance(b, o)
	s.mu.Unlock()

	defer o.release()
	s.room(b, buf, b.n)
	n, err := o.at.ReadAt(b.buf[headroom:headroom+b.n], b.off)
	if n < b.n {
		b.shrunk = errors.Is(err, io.EOF)
		if !b.shrunk {
			b.err = err
		}
		b.n = n
		b.last = b.last || b.err != nil || b.shrunk
	}
	b.pad()
	return true
}

// advance goes on to the next file after a last block.
func (s *source) advance(b *block, o *opened) {
	o.off = b.off + int64(b.n) + b.skipped
	if b.last {
		s.open = nil
		s.carry = s.carry[:0]
		s.cur++
		o.release()
	}
}

// span finds where the block ends that begins at o.off: after the last "\n" in
// the next blockSize bytes, or after the next one if there is none.
func (s *source) span(b *block, o *opened) {
	left := o.limit - o.off
	if left <= int64(s.blockSize) {
		b.n, b.last = int(max(left, 0)), true
		return
	}
	end := o.off + int64(s.blockSize)
	for hi := end; hi > o.off; {
		lo := max(o.off, hi-int64(len(s.scratch)))
		w := s.scratch[:hi-lo]
		if n, err := o.at.ReadAt(w, lo); n < len(w) {
			s.broken(b, o, err)
			return
		}
		if i := bytes.LastIndexByte(w, '\n'); i >= 0 {
			b.n = int(lo + int64(i) + 1 - o.off)
			return
		}
		hi = lo
	}
	wide := make([]byte, 64<<10)
	for at := end; ; {
		w := wide[:min(int64(len(wide)), o.limit-at)]
		n, err := o.at.ReadAt(w, at)
		i := bytes.IndexByte(w[:n], '\n')
		switch {
		case i >= 0:
			at += int64(i) + 1
			b.whole = true
		case n < len(w):
			s.broken(b, o, err)
			return
		default:
			if at += int64(n); at < o.limit {
				continue
			}
		}
		if at-o.off > int64(s.maxLine) {
			b.skipped = at - o.off
		} else {
			b.n = int(at - o.off)
		}
		b.last = at >= o.limit
		return
	}
}

// broken ends a file that does not have the bytes that it had.
func (s *source) broken(b *block, o *opened, err error) {
	b.last = true
	if !errors.Is(err, io.EOF) {
		b.err = err
		return
	}
	// What is left is read as the last block, which then finds it short.
	b.n = int(min(o.limit-o.off, int64(s.blockSize)))
}

// room gives b a buffer for n bytes.
func (s *source) room(b *block, buf *[]byte, n int) {
	need := headroom + n + padding
	if n > s.blockSize {
		s.big <- struct{}{}
		b.big = true
		if len(s.bigBuf) < need {
			s.bigBuf = nil
			s.bigBuf = make([]byte, need)
		}
		b.buf = s.bigBuf[:need]
		return
	}
	if len(*buf) < need {
		*buf = make([]byte, headroom+s.blockSize+padding)
	}
	b.buf = (*buf)[:need]
}

// done gives back what the block holds.
func (s *source) done(b *block) {
	if b.big {
		<-s.big
	}
	b.buf = nil
}

func (b *block) pad() {
	p := b.buf[headroom+b.n:]
	for i := range p[:padding] {
		p[i] = '\n'
	}
}

// fill reads a block from a stream.
func (s *source) fill(b *block, o *opened, buf *[]byte) {
	s.room(b, buf, s.blockSize)
	data := b.buf[headroom : headroom+s.blockSize]
	n := copy(data, s.carry) // less than a block, as is each step below
	s.carry = s.carry[:0]
	searched := 0 // what a line that is too long left behind it may have a line's end
	for {
		var err error
		want := min(n+s.blockSize, len(data))
		for n < want && err == nil {
			var m int
			m, err = o.stream.Read(data[n:want])
			n += m
		}
		if err != nil {
			b.n, b.last = n, true
			if !errors.Is(err, io.EOF) {
				b.err = err
			}
			b.pad()
			return
		}
		if i := bytes.LastIndexByte(data[searched:n], '\n'); i >= 0 {
			b.n = searched + i + 1
			s.carry = append(s.carry, data[b.n:n]...)
			b.pad()
			return
		}
		searched = n
		if n < len(data) {
			continue
		}
		// A line longer than the buffer.
		if n > s.maxLine {
			s.skip(b, o, n)
			return
		}
		if !b.big {
			s.big <- struct{}{}
			b.big = true
		}
		next := s.bigBuf
		if need := headroom + min(2*n, s.maxLine+s.blockSize) + padding; len(next) < need {
			next = make([]byte, need)
		}
		copy(next[headroom:], data[:n])
		s.bigBuf, b.buf = next, next
		data = next[headroom : len(next)-padding]
	}
}

// skip drops a line that is too long, of which n bytes are read.
func (s *source) skip(b *block, o *opened, n int) {
	b.n = 0
	b.skipped = int64(n)
	w := b.buf[headroom : headroom+s.blockSize]
	for {
		m, err := o.stream.Read(w)
		if i := bytes.IndexByte(w[:m], '\n'); i >= 0 {
			b.skipped += int64(i) + 1
			b.whole = true
			s.carry = append(s.carry, w[i+1:m]...)
			break
		}
		b.skipped += int64(m)
		if err != nil {
			b.last = true
			if !errors.Is(err, io.EOF) {
				b.err = err
			}
			break
		}
	}
	b.pad()
}

// reason is err without what it says of the system call and the path.
func reason(err error) string {
	var pe *os.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return strings.TrimPrefix(err.Error(), "zstd: ")
}

func archiveFault(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the archive is cut"
	}
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return "the archive needs a window of more than 128 MiB, which no archive of a segment has"
	}
	return fmt.Sprintf("the archive is damaged or has something after its end: %s", reason(err))
}
