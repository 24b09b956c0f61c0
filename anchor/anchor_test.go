package anchor_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/auditledger/auditledger/anchor"
	"github.com/auditledger/auditledger/ledger"
)

var example = anchor.Statement{Ledger: ledger.Digest([]byte("first")), Records: 42, Head: ledger.Head{Seq: 42, Sum: ledger.Digest([]byte("42"))},
	Tool: "ledgerctl v1", TS: 1700000000000000000}

func TestStatement(t *testing.T) {
	want := `{"ledger":"` + example.Ledger.String() + `","previous":"` + strings.Repeat("0", 64) + `","records":42,"seq":42,"sha256":"` +
		example.Head.Sum.String() + `","tool":"ledgerctl v1","ts":1700000000000000000}`
	if got := string(example.Bytes()); got != want {
		t.Fatalf("statement is %s, want %s", got, want)
	}
	back, err := anchor.ParseStatement([]byte(want))
	if err != nil || back != example {
		t.Fatalf("parsed %+v, %v", back, err)
	}
	for name, text := range map[string]string{
		"newline":         want + "\n",
		"space":           strings.Replace(want, ",", ", ", 1),
		"further member":  strings.Replace(want, `"tool"`, `"more":1,"tool"`, 1),
		"doubled member":  strings.Replace(want, `"tool"`, `"seq":42,"tool"`, 1),
		"missing member":  strings.Replace(want, `"tool":"ledgerctl v1",`, ``, 1),
		"escape":          strings.Replace(want, "ledgerctl", `\u006cedgerctl`, 1),
		"upper case":      strings.Replace(want, example.Head.Sum.String(), strings.ToUpper(example.Head.Sum.String()), 1),
		"seq zero":        strings.NewReplacer(`"seq":42`, `"seq":0`, `"records":42`, `"records":0`).Replace(want),
		"other records":   strings.Replace(want, `"records":42`, `"records":41`, 1),
		"negative":        strings.Replace(want, `"seq":42`, `"seq":-42`, 1),
		"float":           strings.Replace(want, `"seq":42`, `"seq":42.0`, 1),
		"no ledger":       strings.Replace(want, example.Ledger.String(), strings.Repeat("0", 64), 1),
		"nothing":         "",
		"another file":    "<html>",
		"long":            strings.Replace(want, "ledgerctl", strings.Repeat("l", anchor.MaxStatement), 1),
		"a ledger record": `{"args_digest":"e3"}`,
	} {
		if _, err := anchor.ParseStatement([]byte(text)); err == nil {
			t.Errorf("%s: %s passes for a statement", name, text)
		}
	}
}

func FuzzStatement(f *testing.F) {
	f.Add(example.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := anchor.ParseStatement(b); err == nil && string(s.Bytes()) != string(b) {
			t.Errorf("%q is read, and written as %q", b, s.Bytes())
		}
	})
}

func FuzzKey(f *testing.F) {
	f.Add(anchor.KeyOf(example, false).String())
	f.Add(anchor.KeyOf(example, true).String())
	f.Fuzz(func(t *testing.T, s string) {
		if k, ok := anchor.ParseKey(s); ok && k.String() != s {
			t.Errorf("%q is read, and written as %q", s, k)
		}
	})
}

// TestKeysSort is the order of keys: that of the statements.
func TestKeysSort(t *testing.T) {
	var keys []string
	for _, seq := range []uint64{1, 9, 10, 99, 100, 1 << 40} {
		s := example
		s.Head = ledger.Head{Seq: seq, Sum: ledger.Digest(fmt.Append(nil, seq))}
		keys = append(keys, anchor.KeyOf(s, false).String())
		for i := range int64(3) {
			s.TS = int64(9e17) + i*int64(1e17) + int64(seq)
			keys = append(keys, anchor.KeyOf(s, true).String())
		}
	}
	if !slices.IsSorted(keys) {
		t.Errorf("keys in the order of statements are not sorted: %q", keys)
	}
	for _, k := range keys {
		if _, ok := anchor.ParseKey(k); !ok {
			t.Errorf("%s is not read", k)
		}
	}
}

func TestPush(t *testing.T) {
	p := newPushes(t)
	c := newChain(10, "", 1)
	first := p.must(c, false)
	if first.Already || first.Since != 10 || first.Head.Seq != 10 || !first.Previous.IsZero() || first.Lock != compliance {
		t.Fatalf("first push: %+v", first)
	}
	if c.from != nil {
		t.Error("the first push did not check everything")
	}
	if r := p.must(c, false); !r.Already || r.Version != first.Version || p.count() != 1 {
		t.Errorf("same head again: %+v", r)
	}
	p.now = p.now.Add(time.Hour)
	p.m.now = p.now
	more := newChain(25, "", 1)
	second := p.must(more, false)
	if second.Since != 15 || second.Previous != first.Digest {
		t.Errorf("second push: %+v", second)
	}
	if f := more.from; f == nil || f.Head.Seq != 10 || f.Offset != 1000 {
		t.Errorf("the second push checked from %+v", f)
	}
	p.now = p.now.Add(time.Hour)
	p.m.now = p.now
	beat := p.must(more, true)
	if beat.Already || beat.Since != 0 || beat.Previous != second.Digest || beat.Key <= second.Key {
		t.Errorf("a sign of life: %+v", beat)
	}
	s := p.look()
	if len(s.Anchors) != 3 || len(s.Findings) != 0 || s.Through().Digest != beat.Digest || p.count() != 3 {
		t.Errorf("survey: %+v, %d receipts", s, p.count())
	}
}

// TestReceiptsAreACache shows that they save time, and that nothing else is
// taken from them.
func TestReceiptsAreACache(t *testing.T) {
	p := newPushes(t)
	for n := 1; n <= 5; n++ {
		p.must(newChain(n, "", 1), false)
	}
	last := p.must(newChain(5, "", 1), false)
	for name, spoil := range map[string]func() error{
		"deleted": func() error { return os.Remove(p.receipts) },
		"garbage": func() error { return os.WriteFile(p.receipts, []byte("what\n{\"key\":1}\n"), 0o600) },
		"torn":    func() error { return os.WriteFile(p.receipts, []byte(`{"key":"7`), 0o600) },
		"rewritten": func() error {
			b, err := os.ReadFile(p.receipts)
			text := strings.ReplaceAll(string(b), fmt.Sprintf("%020d", 5), fmt.Sprintf("%020d", 7))
			return errors.Join(err, os.WriteFile(p.receipts, []byte(strings.ReplaceAll(text, `"seq":5`, `"seq":7`)), 0o600))
		},
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		c := newChain(5, "", 1)
		r, err := p.push(c, false)
		if err != nil || !r.Already || r.Version != last.Version || c.from == nil || c.from.Head.Seq != 5 {
			t.Errorf("%s: %+v from %+v, %v", name, r, c.from, err)
		}
		all, _ := anchor.ReadReceipts(p.receipts)
		if !slices.ContainsFunc(all, func(r anchor.Receipt) bool { return r.Head.Seq == 5 && r.Version == last.Version }) {
			t.Errorf("%s: the receipt was not written anew", name)
		}
	}
}

// TestRefused holds what push must not anchor.
func TestRefused(t *testing.T) {
	for name, c := range map[string]*chain{
		"rewritten":       newChain(12, "forged", 3),
		"cut":             newChain(9, "", 1),
		"cut and goes on": newChain(30, "again", 9),
		"empty":           {},
		"another ledger":  newChain(12, "other", 1),
	} {
		for _, receipts := range []bool{true, false} {
			p := newPushes(t)
			p.must(newChain(10, "", 1), false)
			if !receipts {
				os.Remove(p.receipts)
			}
			text := p.refuse(c, anchor.ErrRefused)
			if p.m.calls["create"] != 1 {
				t.Errorf("%s: it was anchored all the same", name)
			}
			t.Logf("%s: %s", name, text)
		}
	}
	p := newPushes(t)
	p.refuse(&chain{}, anchor.ErrEmpty)
	p.refuse(&chain{sums: newChain(1, "", 1).sums, broken: fmt.Errorf("%w: does not verify", anchor.ErrRefused)}, anchor.ErrRefused)
}

// TestPushFaults holds what a sink does wrong, or an honest one suffers.
func TestPushFaults(t *testing.T) {
	someone := func(p *pushes, head ledger.Head, ledgerID ledger.Hash) []byte {
		return anchor.Statement{Ledger: ledgerID, Records: head.Seq, Head: head, Tool: "someone", TS: p.now.UnixNano() - 1}.Bytes()
	}
	c := newChain(10, "", 1)
	head := ledger.Head{Seq: 10, Sum: c.sums[9]}
	lost := errors.New("connection reset")

	t.Run("answer lost", func(t *testing.T) {
		p := newPushes(t)
		p.m.afterPut = func(string) error { return lost }
		if r := p.must(c, false); r.Already || p.count() != 1 || len(p.look().Findings) != 0 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("answer lost and retried to 412", func(t *testing.T) {
		p := newPushes(t)
		p.m.afterPut = func(string) error { return anchor.ErrExists }
		if r := p.must(c, false); r.Already || p.count() != 1 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("other content at the key", func(t *testing.T) {
		for name, body := range map[string][]byte{"no statement": []byte("{}"), "another head": someone(newPushes(t), ledger.Head{Seq: 10, Sum: ledger.Digest(nil)}, c.sums[0])} {
			p := newPushes(t)
			p.m.beforePut = func(key string) { p.m.lay(key, body, compliance) }
			if text := p.refuse(c, anchor.ErrRefused); !strings.Contains(text, "ALARM") {
				t.Errorf("%s: %s", name, text)
			}
			// Also where the server ignores create-only.
			p = newPushes(t)
			p.m.unordered = true
			p.m.beforePut = func(key string) { p.m.lay(key, body, compliance) }
			if text := p.refuse(c, anchor.ErrRefused); !strings.Contains(text, "ALARM") {
				t.Errorf("%s, create-only ignored: %s", name, text)
			}
		}
	})
	t.Run("another push was faster", func(t *testing.T) {
		for _, ignored := range []bool{false, true} {
			p := newPushes(t)
			p.m.unordered = ignored
			p.m.beforePut = func(key string) { p.m.lay(key, someone(p, head, c.sums[0]), compliance) }
			r := p.must(c, false)
			if r.Already == ignored || len(r.Notes) == 0 || p.count() != 1 {
				t.Errorf("create-only ignored %v: %+v", ignored, r)
			}
			for _, f := range p.look().Findings {
				if f.Kind != anchor.Overlaid {
					t.Errorf("%+v", f)
				}
			}
		}
	})
	t.Run("another push, without a lock", func(t *testing.T) {
		p := newPushes(t)
		p.m.beforePut = func(key string) { p.m.lay(key, someone(p, head, c.sums[0]), anchor.Lock{}) }
		p.refuse(c, anchor.ErrNotLocking)
	})
	t.Run("lock swallowed", func(t *testing.T) {
		p := newPushes(t)
		p.m.dropLock = true
		p.refuse(c, anchor.ErrNotLocking)
	})
	t.Run("lock shorter or weaker than asked", func(t *testing.T) {
		for _, l := range []anchor.Lock{{Mode: anchor.Compliance, Until: compliance.Until.Add(-time.Second)}, {Mode: anchor.Governance, Until: compliance.Until}} {
			p := newPushes(t)
			p.m.afterPut = func(key string) error { p.m.keys[key][0].lock = l; return nil }
			p.refuse(c, anchor.ErrNotLocking)
		}
	})
	t.Run("bytes changed on the way", func(t *testing.T) {
		p := newPushes(t)
		p.m.afterPut = func(key string) error { p.m.keys[key][0].body = []byte("{}"); return nil }
		p.refuse(c, anchor.ErrRefused)
	})
	t.Run("taken and not kept", func(t *testing.T) {
		p := newPushes(t)
		p.m.lie = true
		p.refuse(c, nil)
	})
	t.Run("read-back fails", func(t *testing.T) {
		p := newPushes(t)
		p.m.statError = func(string, string) error { return lost }
		p.refuse(c, lost)
		// The next push takes it up.
		p.m.statError = nil
		if r := p.must(c, false); !r.Already || p.count() != 1 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("not reached", func(t *testing.T) {
		p := newPushes(t)
		p.m.ready = lost
		p.refuse(c, lost)
		p.m.ready, p.m.listError = nil, lost
		p.refuse(c, lost)
	})
	t.Run("clock", func(t *testing.T) {
		for d, want := range map[time.Duration]string{-26 * time.Minute: "26m0s behind", 90 * time.Minute: "1h30m0s ahead of"} {
			p := newPushes(t)
			p.now = p.m.now.Add(d)
			if text := p.refuse(c, nil); !strings.Contains(text, "clock") || !strings.Contains(text, want) || p.m.calls["create"] > 0 {
				t.Errorf("%s, want %q", text, want)
			}
		}
		p := newPushes(t)
		p.now = p.m.now.Add(-2 * time.Minute)
		if r := p.must(c, false); !r.Lock.Until.Equal(compliance.Until) {
			t.Errorf("the lock ends %s, by the sink's clock it is %s", r.Lock.Until, compliance.Until)
		}
	})
	t.Run("a lock half over is renewed", func(t *testing.T) {
		p := newPushes(t)
		p.must(c, false)
		p.now = epoch.Add(retain/2 - time.Hour)
		p.m.now = p.now
		if r := p.must(c, false); !r.Already {
			t.Error("renewed too early")
		}
		p.now = epoch.Add(retain/2 + time.Hour)
		p.m.now = p.now
		if r := p.must(c, false); r.Already || !r.Lock.Until.Equal(p.now.Add(retain)) {
			t.Errorf("not renewed: %+v", r)
		}
	})
	t.Run("governance", func(t *testing.T) {
		p := newPushes(t)
		p.mode = anchor.Governance
		if r := p.must(c, false); r.Lock.Mode != anchor.Governance || !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "bypass") }) {
			t.Errorf("%+v", r)
		}
		if f := p.look().Findings; len(f) != 1 || f[0].Kind != anchor.Weak {
			t.Errorf("%+v", f)
		}
		p.m.keys = map[string][]*memVersion{} // lifted and deleted
		if f := p.look().Findings; len(f) != 1 || f[0].Kind != anchor.Lost {
			t.Errorf("%+v", f)
		}
	})
	t.Run("receipts cannot be written", func(t *testing.T) {
		p := newPushes(t)
		p.receipts = filepath.Join(t.TempDir(), "absent", "anchors.jsonl")
		if _, err := p.push(c, false); err == nil || p.m.calls["create"] > 0 {
			t.Errorf("%v, %v", err, p.m.calls)
		}
	})
}

// TestLook lays each fault of FAULTS.md C over four good anchors.
func TestLook(t *testing.T) {
	ended := anchor.Lock{Mode: anchor.Compliance, Until: epoch.Add(-time.Hour)}
	forge := func(p *pushes, seq uint64, seed string) (string, []byte) {
		c := newChain(int(seq), seed, 1)
		own := newChain(1, "", 1)
		s := anchor.Statement{Ledger: own.sums[0], Records: seq, Head: ledger.Head{Seq: seq, Sum: c.sums[seq-1]}, TS: epoch.UnixNano()}
		return anchor.KeyOf(s, false).String(), s.Bytes()
	}
	for _, c := range []struct {
		name  string
		spoil func(p *pushes, keys []string)
		want  []anchor.Kind
		left  int // anchors that count
	}{
		{"nothing", func(*pushes, []string) {}, nil, 4},
		{"delete marker", func(p *pushes, k []string) { p.m.lay(k[3], nil, anchor.Lock{}).marker = true }, []anchor.Kind{anchor.Marker}, 4},
		{"forged version on top", func(p *pushes, k []string) { p.m.lay(k[3], []byte("{}"), compliance) }, []anchor.Kind{anchor.Forged}, 4},
		{"forged head on top", func(p *pushes, k []string) {
			_, b := forge(p, 40, "evil")
			p.m.lay(k[3], b, compliance)
		}, []anchor.Kind{anchor.Forged}, 4},
		{"same statement on top", func(p *pushes, k []string) { p.m.lay(k[3], p.m.keys[k[3]][0].body, compliance) }, []anchor.Kind{anchor.Overlaid}, 4},
		{"unlocked version below", func(p *pushes, k []string) {
			v := p.m.lay(k[3], []byte("{}"), anchor.Lock{})
			p.m.keys[k[3]] = []*memVersion{v, p.m.keys[k[3]][0]}
		}, []anchor.Kind{anchor.Forged}, 4},
		{"lock gone", func(p *pushes, k []string) { p.m.keys[k[3]][0].lock = anchor.Lock{} }, []anchor.Kind{anchor.Unlocked}, 3},
		{"lock ended", func(p *pushes, k []string) { p.m.keys[k[0]][0].lock = ended }, []anchor.Kind{anchor.Expired}, 4},
		{"lock weaker", func(p *pushes, k []string) { p.m.keys[k[3]][0].lock.Mode = anchor.Governance }, []anchor.Kind{anchor.Weak}, 4},
		{"edited underneath", func(p *pushes, k []string) { p.m.keys[k[3]][0].err = anchor.ErrAltered }, []anchor.Kind{anchor.Forged}, 3},
		{"edited underneath, the last", func(p *pushes, k []string) { p.m.keys[k[3]][0].body = []byte("{}") }, []anchor.Kind{anchor.Forged, anchor.Forged}, 3},
		{"deleted underneath, the last", func(p *pushes, k []string) { delete(p.m.keys, k[3]) }, []anchor.Kind{anchor.Lost}, 3},
		{"deleted underneath, between", func(p *pushes, k []string) { delete(p.m.keys, k[1]) }, []anchor.Kind{anchor.Lost, anchor.Unchained}, 3},
		{"deleted underneath, between, and the receipts", func(p *pushes, k []string) {
			delete(p.m.keys, k[1])
			os.Remove(p.receipts)
		}, []anchor.Kind{anchor.Unchained}, 3},
		{"the oldest gone, without receipts", func(p *pushes, k []string) {
			delete(p.m.keys, k[0])
			os.Remove(p.receipts)
		}, []anchor.Kind{anchor.Gone}, 3},
		{"only a marker left", func(p *pushes, k []string) {
			p.m.keys[k[3]] = nil
			p.m.lay(k[3], nil, anchor.Lock{}).marker = true
		}, []anchor.Kind{anchor.Lost, anchor.Lost, anchor.Marker}, 3},
		{"two heads for one seq", func(p *pushes, k []string) {
			key, b := forge(p, 40, "evil")
			p.m.lay(key, b, compliance)
		}, []anchor.Kind{anchor.TwoHeads, anchor.Branched}, 5},
		{"statement under another's key", func(p *pushes, k []string) {
			key, _ := forge(p, 50, "")
			p.m.lay(key, p.m.keys[k[3]][0].body, compliance)
		}, []anchor.Kind{anchor.Forged}, 4},
		{"a name that is none", func(p *pushes, k []string) { p.m.lay("note.txt", []byte("hello"), anchor.Lock{}) }, []anchor.Kind{anchor.Stray}, 4},
		{"a trial object", func(p *pushes, k []string) { p.m.lay(anchor.Trials+"x", []byte("hello"), anchor.Lock{}) }, nil, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPushes(t)
			var keys []string
			for n := 10; n <= 40; n += 10 {
				keys = append(keys, p.must(newChain(n, "", 1), false).Key)
			}
			c.spoil(p, keys)
			s := p.look()
			var got []anchor.Kind
			for _, f := range s.Findings {
				got = append(got, f.Kind)
				if f.Detail == "" {
					t.Errorf("%+v says nothing", f)
				}
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) || len(s.Anchors) != c.left {
				t.Errorf("%d anchors and %+v, want %d and %v", len(s.Anchors), s.Findings, c.left, c.want)
			}
		})
	}
}

func TestLookOf(t *testing.T) {
	p := newPushes(t)
	p.must(newChain(10, "", 1), false)
	own, other := newChain(1, "", 1).sums[0], newChain(1, "x", 1).sums[0]
	if s := p.look().Of(own); len(s.Anchors) != 1 || len(s.Findings) != 0 {
		t.Errorf("%+v", s)
	}
	if s := p.look().Of(other); len(s.Anchors) != 0 || len(s.Findings) != 1 || s.Findings[0].Kind != anchor.Foreign || s.Faults() != 1 {
		t.Errorf("%+v", s)
	}
	if s := p.look().Of(ledger.Hash{}); len(s.Anchors) != 1 {
		t.Errorf("the anchors of an empty ledger: %+v", s)
	}
}

// TestLookCannot shows that what cannot be read is an error, not a finding.
func TestLookCannot(t *testing.T) {
	p := newPushes(t)
	for n := 10; n <= 400; n += 10 {
		p.must(newChain(n, "", 1), false)
	}
	denied := errors.New("denied")
	p.m.readError = func(key string) error {
		if strings.Contains(key, "00200-") {
			return denied
		}
		return nil
	}
	if _, err := anchor.Look(t.Context(), p.m, nil, epoch); !errors.Is(err, denied) {
		t.Errorf("a read that fails: %v", err)
	}
	p.m.readError, p.m.listError = nil, denied
	if _, err := anchor.Look(t.Context(), p.m, nil, epoch); !errors.Is(err, denied) {
		t.Errorf("a listing that fails: %v", err)
	}
}

// TestManyWarnings are told in part, faults all.
func TestManyWarnings(t *testing.T) {
	p := newPushes(t)
	for n := 1; n <= 40; n++ {
		key := p.must(newChain(n, "", 1), false).Key
		p.m.lay(key, nil, anchor.Lock{}).marker = true
		if n > 20 {
			p.m.lay(key, []byte("{}"), compliance)
		}
	}
	s := p.look()
	if s.Faults() != 20 || len(s.Findings) != 31 || !strings.Contains(s.Findings[30].Detail, "30 more") {
		t.Errorf("%d faults, %d findings, the last %+v", s.Faults(), len(s.Findings), s.Findings[len(s.Findings)-1])
	}
}

// TestManyLaid reads a bounded number of versions of one key.
func TestManyLaid(t *testing.T) {
	p := newPushes(t)
	key := p.must(newChain(1, "", 1), false).Key
	for range 500 {
		p.m.lay(key, []byte("{}"), compliance)
	}
	p.m.calls["read"] = 0
	if s := p.look(); len(s.Anchors) != 1 || s.Faults() == 0 || p.m.calls["read"] > 20 {
		t.Errorf("%d anchors, %d faults, %d reads", len(s.Anchors), s.Faults(), p.m.calls["read"])
	}
}
