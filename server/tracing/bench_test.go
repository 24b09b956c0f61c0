package tracing

import (
	"context"
	"log/slog"
	"testing"
)

// BenchmarkCall is the spans of one mutation.
func BenchmarkCall(b *testing.B) {
	b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
	t, err := New(b.Context(), Config{Getenv: func(name string) string { return env[name] }, Service: "bench", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		ctx, call := t.Begin(context.Background(), "write_note", map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28"}, false)
		call.Set("gen_ai.tool.name", "write_note")
		for _, name := range []string{"decide", "intent", "effect", "outcome"} {
			_, s := t.Step(ctx, name)
			s.Set("request_id", "req-00000001")
			if name == "intent" || name == "outcome" {
				s.Set("ledger.decision", "allow")
				s.Set("ledger.outcome", "committed")
				s.SetInt("ledger.seq", 7)
			}
			s.End("")
		}
		call.Set("request_id", "req-00000001")
		call.End("")
	}
}
