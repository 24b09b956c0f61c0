package gate

import (
	"context"
	"strings"
	"testing"
)

func TestTraceOf(t *testing.T) {
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	good := "00-" + trace + "-" + parent + "-01"
	for header, want := range map[string]string{
		good:                                 trace,
		"00-" + trace + "-" + parent + "-00": trace,
		"cc-" + trace + "-" + parent + "-01": trace,
		"cc-" + trace + "-" + parent + "-01-what-the-future-says": trace,
		good + "-more":                                         "",
		"cc-" + trace + "-" + parent + "-01x":                  "",
		"ff-" + trace + "-" + parent + "-01":                   "",
		"0-" + trace + "-" + parent + "-01":                    "",
		"00-" + strings.ToUpper(trace) + "-" + parent + "-01":  "",
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-01": "",
		"00-" + trace + "-" + strings.Repeat("0", 16) + "-01":  "",
		"00-" + trace + "-" + parent + "-0g":                   "",
		"00-" + trace[:31] + "-" + parent + "-011":             "",
		"00_" + trace + "_" + parent + "_01":                   "",
		"00-" + trace[:30] + "\u00e9" + "-" + parent + "-01":   "",
		"00-" + trace[:30] + "\n\n" + "-" + parent + "-01":     "",
		good[:54]:                  "",
		"":                         "",
		strings.Repeat("0", 1<<20): "",
	} {
		if got := traceOf(map[string]any{"traceparent": header}); got != want {
			t.Errorf("%.80q: %q, want %q", header, got, want)
		}
	}
	for _, value := range []any{nil, 7, []any{good}, map[string]any{"a": good}} {
		if got := traceOf(map[string]any{"traceparent": value}); got != "" {
			t.Errorf("%v: %q", value, got)
		}
	}
	if got := traceOf(nil); got != "" {
		t.Errorf("without _meta: %q", got)
	}
}

// TestUntracedCostsNothing: a gate without a tracer allocates nothing for it.
func TestUntracedCostsNothing(t *testing.T) {
	g := New(Config{})
	c := &Call{RequestID: "req-0001"}
	ctx := context.Background()
	if n := testing.AllocsPerRun(100, func() {
		ctx, whole := g.tracer.Begin(ctx, "write_note", nil, false)
		_, part := g.step(ctx, c, stepEffect)
		part.SetInt("ledger.seq", 7)
		part.End("tool_error")
		whole.End("")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
