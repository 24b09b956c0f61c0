package s3anchor_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/auditledger/auditledger/anchor"
	"github.com/auditledger/auditledger/anchor/fileanchor"
	"github.com/auditledger/auditledger/anchor/s3anchor"
	"github.com/auditledger/auditledger/ledger"
)

// TestContract is what every sink must do, whatever keeps the anchors.
func TestContract(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		dir := t.TempDir()
		contract(t, fileanchor.New(dir, "file://"+dir), func() {})
	})
	t.Run("s3", func(t *testing.T) {
		s := newServer(t)
		s.bucket("contract", true)
		at := sink(t, "s3://contract/a/prefix", s.address)
		beside := func() {
			// What is beside the prefix is none of ours.
			for _, other := range []string{"s3://contract/a", "s3://contract/a/prefixed", "s3://contract"} {
				if _, err := sink(t, other, s.address).Create(t.Context(), "beside.json", []byte("{}"), lockFor(time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
		}
		contract(t, at, beside)
	})
	t.Run("s3, pages of two", func(t *testing.T) {
		s := newServer(t)
		s.bucket("contract", true)
		contract(t, sink(t, "s3://contract", s.address, func(o *s3anchor.Options) { o.PageSize = 2 }), func() {})
	})
}

func lockFor(d time.Duration) anchor.Lock {
	return anchor.Lock{Mode: anchor.Compliance, Until: time.Now().Add(d).Truncate(time.Second).Add(time.Second).UTC()}
}

func list(t testing.TB, s anchor.Sink, begin string) (keys []string, all []anchor.Version) {
	t.Helper()
	for v, err := range s.Versions(t.Context(), begin) {
		if err != nil {
			t.Fatal(err)
		}
		keys, all = append(keys, v.Key), append(all, v)
	}
	return keys, all
}

func contract(t *testing.T, s anchor.Sink, beside func()) {
	ctx := t.Context()
	if now, err := s.Ready(ctx); err != nil || !now.IsZero() && time.Since(now).Abs() > time.Minute {
		t.Fatalf("ready: %s, %v", now, err)
	}
	if keys, _ := list(t, s, ""); len(keys) != 0 {
		t.Fatalf("a new sink holds %q", keys)
	}
	lock := lockFor(time.Hour)
	id := ledger.Digest([]byte("one")).String()
	var want []string
	for _, n := range []int{9, 10, 99, 100, 5} {
		key := fmt.Sprintf("%s/%020d-0123456789abcdef.json", id, n)
		version, err := s.Create(ctx, key, fmt.Appendf(nil, "body %d", n), lock)
		if err != nil || version == "" {
			t.Fatalf("create: %q, %v", version, err)
		}
		want = append(want, key)

		if _, err := s.Create(ctx, key, []byte("another"), lock); !errors.Is(err, anchor.ErrExists) {
			t.Errorf("created twice: %v", err)
		}
		body, got, err := s.Read(ctx, key, version)
		if err != nil || string(body) != fmt.Sprintf("body %d", n) || !got.Enough(lock) || !got.Holds(time.Now()) {
			t.Errorf("read %q, %s, %v", body, got, err)
		}
		got, sum, err := s.Stat(ctx, key, version)
		if err != nil || !got.Enough(lock) || !sum.IsZero() && sum != ledger.Digest(body) {
			t.Errorf("stat %s, %s, %v", got, sum, err)
		}
	}
	beside()
	slices.Sort(want)
	keys, all := list(t, s, "")
	if !slices.Equal(keys, want) {
		t.Fatalf("holds %q, want %q", keys, want)
	}
	for _, v := range all {
		if v.Marker || v.ID == "" || time.Since(v.Time).Abs() > time.Minute {
			t.Errorf("%+v", v)
		}
		if body, _, err := s.Read(ctx, v.Key, v.ID); err != nil || len(body) == 0 {
			t.Errorf("read what is listed: %q, %v", body, err)
		}
	}
	for i := range want {
		if keys, _ := list(t, s, want[i]); !slices.Equal(keys, want[i:]) {
			t.Errorf("from %s on: %q", want[i], keys)
		}
	}
	for v := range s.Versions(ctx, "") {
		_ = v
		break // a caller may stop
	}
	absent := want[0] + "x"
	if _, _, err := s.Read(ctx, absent, all[0].ID); !errors.Is(err, anchor.ErrAbsent) {
		t.Errorf("read what is not there: %v", err)
	}
	if _, _, err := s.Stat(ctx, absent, all[0].ID); !errors.Is(err, anchor.ErrAbsent) {
		t.Errorf("stat what is not there: %v", err)
	}

	// Of many at once, one creates.
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		wg.Go(func() { _, errs[i] = s.Create(ctx, "race.json", fmt.Appendf(nil, "%d", i), lock) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !errors.Is(err, anchor.ErrExists) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d of 16 created one key", won)
	}
}
