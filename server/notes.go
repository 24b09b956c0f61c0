package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/server/effects"
	"github.com/auditledger/auditledger/server/gate"
)

// A Note is one note, and the arguments of write_note. Its canonical JSON is
// the content of its file.
type Note struct {
	RequestID string `json:"request_id" jsonschema:"the id of this write; a retry with the same id and text is answered and not done again"`
	Text      string `json:"text" jsonschema:"the text of the note"`
}

// Notes is what read_ledger answers.
type Notes struct {
	Notes []Note `json:"notes"`
}

// Status is what write_note answers.
type Status struct {
	RequestID string `json:"request_id"`
	Status    string `json:"status"` // "committed" or "replay"
}

// AddNoteTools adds write_note, read_ledger and rm_rf. The notes are in dir,
// one file each. The last tool is there to be denied: it never does anything.
func AddNoteTools(s *Server, dir *effects.Dir) error {
	no := false
	return errors.Join(
		add[Note, Status](s, &mcp.Tool{
			Name:        "write_note",
			Description: "Writes a note. Safe to retry with the same request_id.",
			Annotations: &mcp.ToolAnnotations{Title: "Write a note", IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &no},
		}, gate.Tool{Mutation: noteWriter{dir}}),
		AddRead(s, &mcp.Tool{
			Name:        "read_ledger",
			Description: "Reads all notes.",
			Annotations: &mcp.ToolAnnotations{Title: "Read the notes", ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &no},
		}, func(ctx context.Context, _ struct{}) (Notes, error) {
			all := Notes{Notes: []Note{}}
			for content, err := range dir.All(ctx) {
				if err != nil {
					return Notes{}, err
				}
				var n Note
				if err := json.Unmarshal(content, &n); err != nil {
					return Notes{}, fmt.Errorf("a note cannot be read: %w", err)
				}
				all.Notes = append(all.Notes, n)
			}
			return all, nil
		}),
		AddRead(s, &mcp.Tool{
			Name:        "rm_rf",
			Description: "Removes a directory with all that is in it.",
			Annotations: &mcp.ToolAnnotations{Title: "Remove everything", DestructiveHint: new(true)},
		}, func(context.Context, struct {
			Path string `json:"path" jsonschema:"what to remove"`
		}) (struct{}, error) {
			return struct{}{}, errors.New("rm_rf is here to be denied, and removes nothing even where a policy allows it")
		}),
	)
}

// noteWriter is write_note: the effect is the note's file itself.
type noteWriter struct{ dir *effects.Dir }

func (w noteWriter) Place() any { return w.dir }

func (w noteWriter) Find(_ context.Context, requestID string) (gate.Finding, error) {
	content, ok, err := w.dir.Read(requestID)
	if err != nil || !ok {
		return gate.Finding{State: gate.Absent}, err
	}
	return gate.Finding{State: gate.Present, Tool: "write_note", Digest: ledger.Digest(content), Result: status(requestID, "replay")}, nil
}

func (w noteWriter) Settle(ctx context.Context, o ledger.OpenIntent) (gate.Finding, error) {
	f, err := w.Find(ctx, o.RequestID)
	if err == nil && f.State == gate.Present {
		err = w.dir.Sync()
	}
	return f, err
}

func (w noteWriter) Prepare(_ context.Context, c *gate.Call) (gate.Effect, error) {
	staged, err := w.dir.Stage(c.Args)
	if err != nil {
		return nil, err
	}
	return &newNote{staged, c.RequestID}, nil
}

type newNote struct {
	*effects.Staged
	requestID string
}

func (n *newNote) Commit(context.Context) (json.RawMessage, error) {
	return status(n.requestID, "committed"), n.Publish(n.requestID)
}

// status is a Status in canonical JSON.
func status(requestID, word string) json.RawMessage {
	b := canon.AppendString([]byte(`{"request_id":`), requestID)
	b = canon.AppendString(append(b, `,"status":`...), word)
	return append(b, '}')
}
