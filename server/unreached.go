package server

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/auditledger/auditledger/server/gate"
)

// transport is a transport on which no call goes without a record: what the SDK
// answers by itself, and never gives to the gate, is recorded here. Such are
// calls in a version that is not served, before a handshake, and cancelled
// before they began.
type transport struct {
	mcp.Transport
	gate *gate.Gate
}

func (t transport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &connection{Connection: c, gate: t.gate, calls: map[jsonrpc.ID]json.RawMessage{}}, nil
}

type connection struct {
	mcp.Connection
	gate *gate.Gate

	mu    sync.Mutex
	calls map[jsonrpc.ID]json.RawMessage // parameters of those in flight
}

func (c *connection) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); ok && err == nil && r.IsCall() && r.Method == "tools/call" {
		c.mu.Lock()
		c.calls[r.ID] = r.Params
		c.mu.Unlock()
	}
	return m, err
}

func (c *connection) Write(ctx context.Context, m jsonrpc.Message) error {
	if r, ok := m.(*jsonrpc.Response); ok {
		c.mu.Lock()
		params, call := c.calls[r.ID]
		delete(c.calls, r.ID)
		c.mu.Unlock()
		if call && r.Error != nil && !gate.Answered(r.Error) {
			var p struct {
				Name      string
				Arguments json.RawMessage
				Meta      map[string]any `json:"_meta"`
			}
			json.Unmarshal(params, &p) // what cannot be read stays out of the record
			c.gate.Unreached(ctx, p.Name, p.Arguments, p.Meta, errors.Is(r.Error, context.Canceled))
		}
	}
	return c.Connection.Write(ctx, m)
}
