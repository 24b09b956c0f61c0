package edge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

// DefaultMaxLine is Config.MaxLine where it is left out, 16 MiB.
const DefaultMaxLine = 16 << 20

// A Config says what a Filter stands between. In and Out are required.
type Config struct {
	In  io.Reader // is read by one goroutine, which outlives Run while a Read blocks
	Out io.Writer // gets one Write for each message, never two at once

	// MaxLine is the length in bytes, without its "\n", of the longest line
	// that is read. 0 is DefaultMaxLine.
	MaxLine int

	// Log gets what was refused and why, never what stood in it. Nil discards.
	Log *slog.Logger

	// Refused, if not nil, is called for each refused line that carried a tool
	// call, before the answer is written and before the next line is read. It
	// may block. It is not called twice at once.
	Refused func(Refusal)
}

// A Refusal is a tool call that was refused for the message it came in. Nothing
// of it has reached the SDK.
type Refusal struct {
	Tool      string      // params.name, of a batch of its first call; "" if it could not be read
	RequestID string      // request_id of the arguments: a string, else its canonical text, else ledger.MissingRequestID
	Digest    ledger.Hash // SHA-256 of the line as it came, without its "\n"
	Code      int         // of the answer: -32700, -32600 or -32602
	Why       string      // the rule: fixed words and figures, nothing of the line
}

// Errors of Run.
var (
	ErrSessionEnded = errors.New("edge: the SDK ended the session before the end of input")

	errStopped = errors.New("edge: no more lines are read")
)

// A Filter is one session. It is used once.
type Filter struct {
	in      io.Reader
	max     int
	log     *slog.Logger
	refused func(Refusal)

	fromHere *io.PipeWriter // what passes, to the SDK
	toSDK    *io.PipeReader

	ended  chan struct{} // closed when the SDK closes its reader or writer
	broken chan struct{} // closed when Out has failed

	outMu  sync.Mutex // one message at a time on out
	out    io.Writer
	outErr error // the first failure; after it nothing is written

	partMu sync.Mutex // writes of the SDK, one at a time
	part   []byte     // the beginning of a message of the SDK

	mu       sync.Mutex
	changed  sync.Cond           // on mu: anything below has changed
	inflight map[string]*request // by key of the id: forwarded and not answered
	awaited  int                 // those of them that the end waits for
	busy     int                 // lines being handled, answers being written
	stopped  bool                // no further line is handled
	closed   bool                // ended is closed
}

// A request is one in flight.
type request struct {
	id        []byte // raw
	listen    bool
	cancelled bool
}

// New returns a Filter, which does nothing before Run.
func New(c Config) *Filter {
	f := &Filter{
		in: c.In, out: c.Out, max: c.MaxLine, log: c.Log, refused: c.Refused,
		ended: make(chan struct{}), broken: make(chan struct{}), inflight: map[string]*request{},
	}
	if f.max <= 0 {
		f.max = DefaultMaxLine
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.changed.L = &f.mu
	f.toSDK, f.fromHere = io.Pipe()
	return f
}

// Reader is where the SDK reads. Its Close, like that of Writer, says that the
// SDK has ended the session.
func (f *Filter) Reader() io.ReadCloser { return reader{f} }

// Writer is where the SDK writes. A Write takes any part of a message, or
// several. It fails only after Close; failures of Out are for Run to tell.
func (f *Filter) Writer() io.WriteCloser { return writer{f} }

// Run moves messages until the end of the session, in the order that the
// package comment gives. When it returns, each request that it took has been
// answered, as far as Out takes answers. Nothing limits how long that may take:
// a call that does not end, or an Out that neither takes nor fails, holds it.
//
// It returns nil at the end of input and when ctx is done, ErrSessionEnded if
// the SDK ended the session, or what failed in reading In or writing Out.
func (f *Filter) Run(ctx context.Context) error {
	read := make(chan error, 1)
	go func() { read <- f.read() }()
	var err error
	select {
	case err = <-read:
	case <-ctx.Done():
	case <-f.ended:
		err = ErrSessionEnded
	case <-f.broken:
	}

	f.mu.Lock()
	f.stopped = true
	for f.busy > 0 || f.awaited > 0 && !f.closed {
		f.changed.Wait()
	}
	var left []*request
	for _, r := range f.inflight {
		if !r.listen && !r.cancelled {
			left = append(left, r)
		}
	}
	switch {
	case f.awaited > 0:
		err = ErrSessionEnded
	case ctx.Err() != nil && err == ErrSessionEnded:
		err = nil // both were told to end, and nothing was lost
	}
	clear(f.inflight)
	f.awaited = 0
	f.mu.Unlock()

	slices.SortFunc(left, func(a, b *request) int { return bytes.Compare(a.id, b.id) })
	for _, r := range left {
		f.answer(&refused{code: codeInternal, id: r.id,
			why: "internal error: the session ended before the request was answered; what became of it is not known here"})
	}
	f.fromHere.Close()

	f.outMu.Lock()
	defer f.outMu.Unlock()
	if f.outErr != nil {
		return fmt.Errorf("edge: writing an answer: %w", f.outErr)
	}
	return err
}

// read handles lines until there are no more.
func (f *Filter) read() error {
	in := bufio.NewReaderSize(f.in, 64<<10)
	var long []byte // a line, as far as it is read, where it is longer than the buffer
	for {
		part, err := in.ReadSlice('\n')
		if err != nil && err != bufio.ErrBufferFull && err != io.EOF {
			// What was read of the line is not known to be all of it.
			return fmt.Errorf("edge: reading a message: %w", err)
		}
		line := bytes.TrimSuffix(part, []byte("\n"))
		switch {
		case len(long)+len(line) > f.max:
			err = f.tooLong(in, long, line, err)
			long = nil
		case err == bufio.ErrBufferFull:
			long = append(long, line...)
			continue
		default:
			if len(long) > 0 {
				long = append(long, part...)
				line = long[:len(long)-len(part)+len(line)]
			}
			if stop := f.line(line); stop != nil {
				return stop
			}
			if long = long[:0]; cap(long) > 1<<20 {
				long = nil
			}
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// tooLong drops the rest of a line that begins with long and part, the last
// piece read, with readErr. It remembers no more of it than MaxLine bytes.
func (f *Filter) tooLong(in *bufio.Reader, long, part []byte, readErr error) error {
	digest := sha256.New()
	digest.Write(long)
	digest.Write(part)
	var e envelope
	scan(append(long, part[:f.max-len(long)]...), e.visit) // a copy: part changes with the next read
	m := message{call: e.carried()}
	for readErr == bufio.ErrBufferFull {
		part, readErr = in.ReadSlice('\n')
		if m.call != nil {
			digest.Write(bytes.TrimSuffix(part, []byte("\n")))
		}
	}
	if readErr != nil && readErr != io.EOF {
		return fmt.Errorf("edge: reading a message: %w", readErr)
	}
	if !f.begin() {
		return errStopped
	}
	defer f.done()
	f.refuse(m, refuse(codeRequest, nil, fmt.Sprintf("message longer than %d bytes", f.max)), ledger.Hash(digest.Sum(nil)))
	return readErr
}

// line handles one line, without its "\n". Its error ends reading. The bytes
// after line, up to its capacity, may be overwritten.
func (f *Filter) line(whole []byte) error {
	line, lead := trim(whole)
	if len(line) == 0 {
		return nil
	}
	if !f.begin() {
		return errStopped
	}
	defer f.done()
	m, r := inspect(line, lead)
	if m.key != "" || m.cancels != "" {
		if replaced := f.register(m, r); replaced != nil {
			r = replaced
		}
	}
	if r != nil {
		f.refuse(m, r, ledger.Digest(whole))
		return nil
	}
	// Where a "\n" followed in the buffer, there is room for one.
	if _, err := f.fromHere.Write(append(line, '\n')); err != nil {
		return ErrSessionEnded
	}
	return nil
}

// register notes a request that will be forwarded, unless r refuses it, or a
// cancellation. What it returns refuses the line instead of r.
func (f *Filter) register(m message, r *refused) *refused {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.cancels != "" {
		running := f.inflight[m.cancels]
		if running == nil {
			r := refuse(codeRequest, nil, "a cancellation of no request in flight")
			r.mute = true
			return r
		}
		running.cancelled = true
		return nil
	}
	if f.inflight[m.key] != nil {
		// Echoed, it would look like an answer to the other request.
		return refuse(codeRequest, nil, "id already in use")
	}
	if r == nil {
		f.inflight[m.key] = &request{id: bytes.Clone(m.id), listen: m.listen}
		if !m.listen {
			f.awaited++
		}
	}
	return nil
}

// begin reports whether a line may be handled; if so, done ends it.
func (f *Filter) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return false
	}
	f.busy++
	return true
}

func (f *Filter) done() {
	f.mu.Lock()
	f.busy--
	f.changed.Broadcast()
	f.mu.Unlock()
}

// refuse reports and answers a refused line.
func (f *Filter) refuse(m message, r *refused, digest ledger.Hash) {
	f.log.Warn("message refused", "code", r.code, "why", r.why, "tool_call", m.call != nil)
	if m.call != nil && f.refused != nil {
		tool, request := m.call.named()
		f.refused(Refusal{Tool: tool, RequestID: request, Digest: digest, Code: r.code, Why: r.why})
	}
	if !r.mute {
		f.answer(r)
	}
}

// answer writes an answer of the filter.
func (f *Filter) answer(r *refused) { f.write(failure(r.id, r.code, r.why)) }

// failure is an error response, with its "\n".
func failure(id []byte, code int, why string) []byte {
	b := append(make([]byte, 0, 128+len(id)+len(why)), `{"jsonrpc":"2.0","id":`...)
	if id == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, id...)
	}
	b = append(b, `,"error":{"code":`...)
	b = strconv.AppendInt(b, int64(code), 10)
	b = append(b, `,"message":`...)
	b = canon.AppendString(b, why)
	return append(b, "}}\n"...)
}

// write gives one message to Out.
func (f *Filter) write(b []byte) {
	f.outMu.Lock()
	defer f.outMu.Unlock()
	if f.outErr != nil {
		return
	}
	n, err := f.out.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		f.outErr = err
		close(f.broken)
		f.log.Error("an answer cannot be written; no more messages are read", "err", err)
	}
}

// fromSDK handles one message of the SDK, with its "\n".
func (f *Filter) fromSDK(line []byte) {
	var e envelope
	_, fault := scan(line, e.visit)
	if version, _ := text(e.jsonrpc); fault != nil || version != "2.0" {
		f.log.Error("the SDK wrote no message of JSON-RPC; dropped")
		return
	}
	if e.method != nil { // a request or notification of the server
		f.write(line)
		return
	}
	key, _ := idKey(e.id)
	f.mu.Lock()
	r := f.inflight[key]
	if r != nil {
		// Before the answer is seen: then the client may use the id again.
		delete(f.inflight, key)
		if !r.listen {
			f.awaited--
		}
		f.busy++
	}
	f.mu.Unlock()
	if r == nil {
		f.log.Error("the SDK answered no request in flight; dropped")
		return
	}
	defer f.done()
	if r.cancelled {
		f.log.Debug("the answer to a cancelled request is dropped")
		return
	}
	if e.err != nil {
		line = typed(line, r.id, e.err)
	}
	f.write(line)
}

// typed is the line of an error response, or one in its place where the SDK
// gave no code, or quotes the parameters in its message.
func typed(line, id, raw []byte) []byte {
	code, message := errorOf(raw)
	words, _ := text(message)
	switch n, _ := strconv.Atoi(string(code)); {
	case n == 0:
		return failure(id, codeRequest, "invalid request: not allowed in this protocol version or session state")
	case strings.HasPrefix(words, "handling '"):
		return failure(id, n, "invalid params: not of the shape that the method takes")
	}
	return line
}

// end notes that the SDK has ended the session.
func (f *Filter) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.ended)
		f.changed.Broadcast()
	}
	f.toSDK.Close() // what is being forwarded fails
}

type reader struct{ f *Filter }

func (r reader) Read(p []byte) (int, error) { return r.f.toSDK.Read(p) }

func (r reader) Close() error {
	r.f.end()
	return nil
}

type writer struct{ f *Filter }

func (w writer) Write(p []byte) (int, error) {
	f := w.f
	f.partMu.Lock()
	defer f.partMu.Unlock()
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	if closed {
		return 0, io.ErrClosedPipe
	}
	for rest := p; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			f.part = append(f.part, rest...)
			break
		}
		line := rest[:i+1]
		if len(f.part) > 0 {
			line = append(f.part, line...)
		}
		f.fromSDK(line)
		f.part = nil
		rest = rest[i+1:]
	}
	return len(p), nil
}

func (w writer) Close() error {
	w.f.end()
	return nil
}
