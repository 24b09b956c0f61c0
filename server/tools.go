package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/server/effects"
	"github.com/auditledger/auditledger/server/gate"
)

// Mutation is a tool that changes something outside of this package's sight.
type Mutation[In, Out any] struct {
	// Do makes the effect and returns when it is durable. It is called at most
	// once for a request id, unless Look, or NotDone, said that the effect of
	// the call before is not there. An error says nothing of the effect unless
	// it is a NotDone: without Look the call is then in doubt.
	Do func(ctx context.Context, requestID string, in In) (Out, error)

	// Look says whether the effect of requestID is there, and durable, and what
	// its result is. Nil where that cannot be known.
	Look func(ctx context.Context, requestID string) (Out, gate.State, error)
}

// NotDone is err of a Do that surely had no effect.
func NotDone(err error) error { return gate.Undone(err) }

// AddRead adds a tool that changes nothing. The schemas of its arguments and
// result are those of In and Out where t has none; In is a struct.
func AddRead[In, Out any](s *Server, t *mcp.Tool, read func(context.Context, In) (Out, error)) error {
	return add[In, Out](s, t, gate.Tool{Read: func(ctx context.Context, c *gate.Call) (json.RawMessage, error) {
		in, err := decode[In](c.Args)
		if err != nil {
			return nil, err
		}
		out, err := read(ctx, in)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	}})
}

// AddMutation adds a tool that changes something. In is a struct with a string
// request_id. It needs Config.Results.
func AddMutation[In, Out any](s *Server, t *mcp.Tool, m Mutation[In, Out]) error {
	if s.c.Results == nil || m.Do == nil {
		return fmt.Errorf("tool %q: a mutation needs Do, and a place for its results in Config.Results", t.Name)
	}
	kept := &kept[In, Out]{name: t.Name, dir: s.c.Results, Mutation: m}
	return add[In, Out](s, t, gate.Tool{Mutation: kept})
}

func add[In, Out any](s *Server, t *mcp.Tool, g gate.Tool) error {
	fail := func(err error) error { return fmt.Errorf("tool %+q: %w", t.Name, err) }
	if !properName(t.Name) {
		return fail(errors.New("a name is 1 to 128 of the characters a-z, A-Z, 0-9, dot, dash and underscore"))
	}
	tool := *t
	var err error
	if tool.InputSchema == nil {
		if tool.InputSchema, err = jsonschema.For[In](nil); err != nil {
			return fail(err)
		}
	}
	if tool.OutputSchema == nil {
		if tool.OutputSchema, err = jsonschema.For[Out](nil); err != nil {
			return fail(err)
		}
	}
	in, ok := tool.InputSchema.(*jsonschema.Schema)
	if !ok || in == nil || in.Type != "object" || reflect.TypeFor[In]().Kind() != reflect.Struct {
		return fail(errors.New("its arguments must be a struct, and its input schema a *jsonschema.Schema of type object"))
	}
	if g.Mutation != nil {
		id := in.Properties["request_id"]
		if id == nil || id.Type != "string" || !slices.Contains(in.Required, "request_id") {
			return fail(errors.New("the arguments of a mutation need a request_id: a string that is required"))
		}
		if id.MinLength == nil {
			id.MinLength = new(1)
		}
		if id.MaxLength == nil || *id.MaxLength > ledger.MaxText {
			id.MaxLength = new(ledger.MaxText)
		}
	}
	if g.Validate, err = validator(in); err != nil {
		return fail(err)
	}
	g.Name = t.Name
	if err := s.gate.Add(g); err != nil {
		return err
	}
	return func() (err error) {
		defer func() { // how the SDK refuses a tool
			if v := recover(); v != nil {
				err = fail(fmt.Errorf("%v", v))
			}
		}()
		s.mcp.AddTool(&tool, s.gate.Handle)
		return nil
	}()
}

// properName reports whether name is one that MCP has for tools: none of its
// characters can be taken for another, or be invisible.
func properName(name string) bool {
	if name == "" || len(name) > 128 {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

// decode reads canonical arguments that were validated.
func decode[In any](args []byte) (in In, err error) {
	d := json.NewDecoder(bytes.NewReader(args))
	d.DisallowUnknownFields()
	if d.Decode(&in) != nil {
		return in, errors.New("the arguments are as the schema says, but do not fit the tool's types")
	}
	return in, nil
}

// validator checks arguments against schema. Its errors tell the model what the
// tool takes, and never quote what was sent.
func validator(schema *jsonschema.Schema) (func([]byte) error, error) {
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return nil, err
	}
	var takes []string
	for name, p := range schema.Properties {
		what := name
		if p.Type != "" {
			what += " (" + p.Type
			if slices.Contains(schema.Required, name) {
				what += ", required"
			}
			what += ")"
		}
		takes = append(takes, what)
	}
	slices.Sort(takes)
	usage := "the tool takes no arguments"
	if len(takes) > 0 {
		usage = "the tool takes " + strings.Join(takes, ", ")
	}
	return func(args []byte) error {
		v, err := canon.Parse(args)
		if err != nil || v.Kind() != canon.Object {
			return fmt.Errorf("they are no object; %s", usage)
		}
		for _, name := range schema.Required {
			if _, ok := v.Get(name); !ok {
				return fmt.Errorf("%s is missing; %s", name, usage)
			}
		}
		for name := range v.Members() {
			// Also where the schema lets more through: a name that is not the
			// tool's could only be dropped, or taken for one that differs in case.
			if schema.Properties[name] == nil {
				return fmt.Errorf("there is an argument that it does not know; %s", usage)
			}
		}
		var m map[string]any
		if err := json.Unmarshal(args, &m); err != nil {
			return fmt.Errorf("they cannot be read; %s", usage)
		}
		if resolved.Validate(m) != nil {
			for name, p := range schema.Properties {
				if r, err := p.CloneSchemas().Resolve(nil); err == nil && m[name] != nil && r.Validate(m[name]) != nil {
					return fmt.Errorf("%s is not as the schema says; %s", name, usage)
				}
			}
			return fmt.Errorf("they are not as the schema says; %s", usage)
		}
		return nil
	}, nil
}

// kept is a mutation whose results are kept in a directory of effects.
type kept[In, Out any] struct {
	name string
	dir  *effects.Dir
	Mutation[In, Out]
}

// result is the content of one file in Config.Results.
type result struct {
	ArgsDigest string          `json:"args_digest"`
	Name       string          `json:"name"`
	RequestID  string          `json:"request_id"`
	Result     json.RawMessage `json:"result"`
}

func (k *kept[In, Out]) Place() any { return k.dir }

func (k *kept[In, Out]) Find(_ context.Context, requestID string) (gate.Finding, error) {
	content, ok, err := k.dir.Read(requestID)
	if err != nil || !ok {
		return gate.Finding{State: gate.Unknown}, err
	}
	var r result
	if err := json.Unmarshal(content, &r); err != nil {
		return gate.Finding{}, fmt.Errorf("a result that was kept cannot be read: %w", err)
	}
	digest, _ := ledger.ParseHash([]byte(r.ArgsDigest))
	return gate.Finding{State: gate.Present, Tool: r.Name, Digest: digest, Result: r.Result}, nil
}

func (k *kept[In, Out]) Settle(ctx context.Context, o ledger.OpenIntent) (gate.Finding, error) {
	f, err := k.Find(ctx, o.RequestID)
	if err != nil {
		return gate.Finding{}, err
	}
	if f.State == gate.Present {
		return f, k.dir.Sync()
	}
	if k.Look == nil {
		return gate.Finding{State: gate.Unknown}, nil
	}
	out, state, err := k.Look(ctx, o.RequestID)
	if err != nil || state != gate.Present {
		return gate.Finding{State: state}, err
	}
	f.State, f.Tool = gate.Present, k.name
	f.Digest, _ = ledger.ParseHash([]byte(o.ArgsDigest))
	f.Result, err = k.keep(o.RequestID, o.ArgsDigest, out)
	return f, err
}

// keep writes a result down, durably.
func (k *kept[In, Out]) keep(requestID, digest string, out Out) (json.RawMessage, error) {
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("the result cannot be written as JSON: %w", err)
	}
	content, err := json.Marshal(result{digest, k.name, requestID, raw})
	if err == nil {
		content, err = canon.Append(nil, content)
	}
	if err != nil {
		return nil, fmt.Errorf("the result cannot be kept: %w", err)
	}
	staged, err := k.dir.Stage(content)
	if err != nil {
		return nil, err
	}
	return raw, staged.Publish(requestID)
}

func (k *kept[In, Out]) Prepare(_ context.Context, c *gate.Call) (gate.Effect, error) {
	in, err := decode[In](c.Args)
	if err != nil {
		return nil, err
	}
	return &foreign[In, Out]{k: k, c: c, in: in}, nil
}

// foreign is an effect that Do makes.
type foreign[In, Out any] struct {
	k  *kept[In, Out]
	c  *gate.Call
	in In
}

func (f *foreign[In, Out]) Discard() {}

func (f *foreign[In, Out]) Commit(ctx context.Context) (json.RawMessage, error) {
	out, err := f.k.Do(ctx, f.c.RequestID, f.in)
	if err != nil {
		return nil, err
	}
	return f.k.keep(f.c.RequestID, f.c.Digest.String(), out)
}
