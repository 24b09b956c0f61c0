package effects

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/auditledger/auditledger/internal/durable"
	"github.com/auditledger/auditledger/internal/durable/crashfs"
)

func publish(t *testing.T, d *Dir, id, content string) error {
	t.Helper()
	s, err := d.Stage([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	return s.Publish(id)
}

func TestDir(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	d, err := Open(durable.OS, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := d.Read("a"); ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := publish(t, d, "a", `{"n":1}`); err != nil {
		t.Fatal(err)
	}
	if err := publish(t, d, "a", `{"n":2}`); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("a second effect of one id: %v", err)
	}
	if b, ok, err := d.Read("a"); !ok || err != nil || string(b) != `{"n":1}` {
		t.Fatalf("%s %v %v", b, ok, err)
	}
	for _, stray := range []string{".staged-1-1", "README", "x.json"} {
		os.WriteFile(filepath.Join(path, stray), []byte("stray"), 0o600)
	}
	n := 0
	for content, err := range d.All(context.Background()) {
		if n++; err != nil || string(content) != `{"n":1}` {
			t.Fatalf("%s %v", content, err)
		}
	}
	if n != 1 {
		t.Errorf("%d effects are listed, want 1", n)
	}
}

// TestSyncIsShared: many who publish at once share syncs of the directory, and
// each is durable when its Publish returns.
func TestSyncIsShared(t *testing.T) {
	disk := crashfs.New()
	d, err := Open(disk, "/notes", nil)
	if err != nil {
		t.Fatal(err)
	}
	const n = 50
	// The first sync of the directory is held until all others have published,
	// so that those can only be made durable by one more.
	entered, all := make(chan struct{}), make(chan struct{})
	var once sync.Once
	held := heldFS{disk, func() { once.Do(func() { close(entered); <-all }) }}
	d.fs = held
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := publish(t, d, "first", "{}"); err != nil {
			t.Error(err)
		}
	})
	<-entered
	var waiting sync.WaitGroup
	waiting.Add(n)
	d.hook = waiting.Done
	for i := range n {
		wg.Go(func() {
			if err := publish(t, d, fmt.Sprint(i), "{}"); err != nil {
				t.Error(err)
			}
		})
	}
	waiting.Wait()
	close(all)
	wg.Wait()
	syncs := 0
	for _, op := range disk.Log() {
		if strings.Contains(op, "syncdir") {
			syncs++
		}
	}
	if syncs >= n {
		t.Errorf("%d syncs for %d effects", syncs, n+1)
	}
	after := disk.After(crashfs.Lost)
	for i := range n {
		if _, ok := after.ReadAll("/notes/" + Name(fmt.Sprint(i))); !ok {
			t.Errorf("effect %d was not durable", i)
		}
	}
}

type heldFS struct {
	*crashfs.Disk
	before func()
}

func (h heldFS) SyncDir(path string) error {
	h.before()
	return h.Disk.SyncDir(path)
}

func TestAfterAFailedSync(t *testing.T) {
	disk := crashfs.New()
	d, err := Open(disk, "/notes", nil)
	if err != nil {
		t.Fatal(err)
	}
	disk.OnOp(func(_ int, what string) (error, error) {
		if strings.HasPrefix(what, "syncdir") {
			return errors.New("input/output error"), nil
		}
		return nil, nil
	})
	if err := publish(t, d, "a", "{}"); err == nil {
		t.Fatal("durable without a sync")
	}
	disk.OnOp(nil)
	if err := publish(t, d, "b", "{}"); err == nil {
		t.Fatal("a sync was trusted after one that failed")
	}
	if err := d.Sync(); err == nil {
		t.Fatal("a sync was trusted after one that failed")
	}
}
