package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The SDK's client asks server/discover first, and takes any error for that of
// a server of before 2026-07-28, to which it then sends initialize. Here it is
// kept from that where the error is one that only a modern server gives, and
// given an error where a server stays silent.

// modernCodes are of errors that servers of before 2026-07-28 do not know:
// header mismatch, missing capability, unsupported version.
var modernCodes = []int64{mcp.CodeHeaderMismatch, mcp.CodeMissingRequiredClientCapabilities, mcp.CodeUnsupportedProtocolVersion}

// errModern is that of a modern server with which there is no common version.
var errModern = errors.New("a server of protocol 2026-07-28 or later refused server/discover: there is no falling back to initialize")

const (
	methodDiscover   = "server/discover"
	methodInitialize = "initialize"
)

// guarded is a transport over which an SDK client negotiates by the rules.
type guarded struct {
	mcp.Transport
	silence time.Duration // after which server/discover counts as not answered
}

func (g *guarded) Connect(ctx context.Context) (mcp.Connection, error) {
	inner, err := g.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &guardedConn{Connection: inner, silence: g.silence, in: make(chan incoming), closed: make(chan struct{}), silent: make(chan struct{}, 1)}
	go c.listen()
	return c, nil
}

type incoming struct {
	msg jsonrpc.Message
	err error
}

type guardedConn struct {
	mcp.Connection
	silence time.Duration
	in      chan incoming
	silent  chan struct{} // server/discover was not answered in time
	closed  chan struct{}
	close   sync.Once

	mu       sync.Mutex // guards what follows
	discover jsonrpc.ID // of the request that is to be answered
	asked    bool
	modern   error
	timer    *time.Timer
}

// listen reads until the connection ends.
func (c *guardedConn) listen() {
	for {
		msg, err := c.Connection.Read(context.Background())
		if res, ok := msg.(*jsonrpc.Response); ok && err == nil && !c.answered(res) {
			continue
		}
		select {
		case c.in <- incoming{msg, err}:
		case <-c.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

// answered notes an answer to server/discover, and reports whether anybody
// waits for res.
func (c *guardedConn) answered(res *jsonrpc.Response) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if res.ID != c.discover {
		return true
	}
	if !c.asked {
		return false // too late
	}
	c.asked = false
	c.timer.Stop()
	if e, ok := errors.AsType[*jsonrpc.Error](res.Error); ok && slices.Contains(modernCodes, e.Code) {
		c.modern = fmt.Errorf("%w (error %d: %s)", errModern, e.Code, e.Message)
	}
	return true
}

func (c *guardedConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-c.in:
		return m.msg, m.err
	case <-c.silent:
		return &jsonrpc.Response{ID: c.discover, Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no answer to server/discover"}}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.closed:
		return nil, io.EOF
	}
}

func (c *guardedConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if req, ok := msg.(*jsonrpc.Request); ok {
		c.mu.Lock()
		switch req.Method {
		case methodDiscover:
			c.discover, c.asked, c.modern = req.ID, true, nil
			c.timer = time.AfterFunc(c.silence, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.asked {
					c.asked = false
					c.silent <- struct{}{}
				}
			})
		case methodInitialize:
			if c.modern != nil {
				defer c.mu.Unlock()
				return c.modern
			}
		}
		c.mu.Unlock()
	}
	return c.Connection.Write(ctx, msg)
}

func (c *guardedConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Connection.Close()
}

// guardedHTTP is the same for a server behind an address.
type guardedHTTP struct {
	mu     sync.Mutex
	modern error
}

func (g *guardedHTTP) RoundTrip(req *http.Request) (*http.Response, error) {
	var m struct{ Method string }
	if req.Method == http.MethodPost && req.GetBody != nil {
		if body, err := req.GetBody(); err == nil {
			text, _ := io.ReadAll(body)
			body.Close()
			json.Unmarshal(text, &m)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.Method == methodInitialize && g.modern != nil {
		return nil, g.modern
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil || m.Method != methodDiscover {
		return res, err
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	res.Body.Close()
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(text))
	g.modern = nil
	for line := range bytes.Lines(text) {
		line, _ = bytes.CutPrefix(line, []byte("data:")) // of an event stream
		var answer struct {
			Error *struct {
				Code    int64
				Message string
			}
		}
		if json.Unmarshal(line, &answer) == nil && answer.Error != nil && slices.Contains(modernCodes, answer.Error.Code) {
			g.modern = fmt.Errorf("%w (error %d: %s)", errModern, answer.Error.Code, answer.Error.Message)
		}
	}
	return res, nil
}

// silenceDefault is how long server/discover may stay unanswered.
const silenceDefault = 10 * time.Second

// serverOptions say which server to talk to.
type serverOptions struct {
	argv    []string // a command over stdio
	http    string   // or an address
	ledger  string   // for the command's LEDGER_DIR, where it is not ""
	silence time.Duration
}

// connect starts the server, or reaches it, and negotiates.
func (o *serverOptions) connect(ctx context.Context) (*mcp.ClientSession, error) {
	var t mcp.Transport
	var guard *guardedHTTP
	if o.http != "" {
		guard = new(guardedHTTP)
		t = &mcp.StreamableClientTransport{Endpoint: o.http, HTTPClient: &http.Client{Transport: guard}, MaxRetries: -1, DisableStandaloneSSE: true}
	} else {
		cmd := exec.Command(o.argv[0], o.argv[1:]...)
		cmd.Stderr = os.Stderr
		if o.ledger != "" {
			cmd.Env = append(os.Environ(), "LEDGER_DIR="+o.ledger)
		}
		t = &guarded{&mcp.CommandTransport{Command: cmd, TerminateDuration: 2 * time.Second}, o.silence}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "ledgerctl", Version: "1"}, nil)
	session, err := client.Connect(ctx, t, nil)
	if err != nil && guard != nil {
		guard.mu.Lock()
		defer guard.mu.Unlock()
		if guard.modern != nil {
			err = guard.modern
		}
	}
	return session, err
}
