package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/auditledger/auditledger/ledger/store"
)

// diskSyncs is what the disk does by itself: n appends of a record's size, a
// sync after each, in the order of the calls.
func (b *bench) diskSyncs(n int) []time.Duration {
	f, err := os.OpenFile(filepath.Join(b.dir, "disk"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	check(err)
	defer f.Close()
	e := entry(0)
	line, _ := e.AppendLine(nil, 1, time.Now().UnixNano(), [32]byte{})
	all := make([]time.Duration, 0, n)
	for range n {
		start := time.Now()
		_, err := f.Write(line)
		check(err)
		check(f.Sync())
		all = append(all, time.Since(start))
	}
	return all
}

func sum(d []time.Duration) (s time.Duration) {
	for _, x := range d {
		s += x
	}
	return s
}

// appendRate is records a second with so many callers.
func appendRate(s *store.Store, callers, each int) float64 {
	start := time.Now()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				_, err := s.Append(context.Background(), entry(c*each+i))
				check(err)
			}
		})
	}
	wg.Wait()
	return float64(callers*each) / time.Since(start).Seconds()
}

func (b *bench) open(name string) *store.Store {
	s, err := store.Open(context.Background(), filepath.Join(b.dir, name), store.Options{})
	check(err)
	return s
}

// appends measures the store, in rounds so that a drift of the machine meets
// all alike.
func (b *bench) appends() {
	fmt.Println("append, durable on return")
	makeLedger(filepath.Join(b.dir, "small"), 1000, 0)
	makeLedger(filepath.Join(b.dir, "large"), 1_000_000, 0)
	small, large := b.open("small"), b.open("large")
	defer small.Close()
	defer large.Close()
	const rounds, each = 7, 400
	var disk, one, many, ratioOne, ratioMany, ratioSize []float64
	b.diskSyncs(100)
	appendRate(small, 1, 100)
	for range rounds {
		d := float64(each) / sum(b.diskSyncs(each)).Seconds()
		o := appendRate(small, 1, each)
		l := appendRate(large, 1, each)
		m := appendRate(small, 64, each)
		disk, one, many = append(disk, d), append(one, o), append(many, m)
		ratioOne, ratioMany, ratioSize = append(ratioOne, o/d), append(ratioMany, m/o), append(ratioSize, o/l)
	}
	note("the disk's own append and sync: %.0f/s; one caller: %.0f/s; 64 callers: %.0f/s (medians of %d rounds)", median(disk), median(one), median(many), rounds)
	b.figure("one caller / the disk's own rate", median(ratioOne), true, 0.9, "")
	b.figure("64 callers / one caller", median(ratioMany), true, 15, "")
	b.figure("cost at 1,000,000 records / cost at 1,000", median(ratioSize), false, 1.1, "")
}
