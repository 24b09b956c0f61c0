package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// slotOf is the lock slot of a request id, one of 2^62. Two ids that share one
// only wait for each other.
func slotOf(requestID string) uint64 {
	sum := sha256.Sum256([]byte(requestID))
	return binary.BigEndian.Uint64(sum[:8]) >> 2
}

// keyed is a mutex per key that is gone when nobody wants it.
type keyed struct {
	mu   sync.Mutex
	held map[uint64]*waiting
}

type waiting struct {
	token chan struct{} // holds one token while the key is free
	users int
}

// join registers one more user of key.
func (k *keyed) join(key uint64) *waiting {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held == nil {
		k.held = make(map[uint64]*waiting)
	}
	w := k.held[key]
	if w == nil {
		w = &waiting{token: make(chan struct{}, 1)}
		w.token <- struct{}{}
		k.held[key] = w
	}
	w.users++
	return w
}

func (k *keyed) leave(key uint64, w *waiting) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w.users--; w.users == 0 {
		delete(k.held, key)
	}
}

func (k *keyed) lock(ctx context.Context, key uint64) (unlock func(), err error) {
	w := k.join(key)
	select {
	case <-w.token:
		return func() { w.token <- struct{}{}; k.leave(key, w) }, nil
	case <-ctx.Done():
		k.leave(key, w)
		return nil, context.Cause(ctx)
	}
}

func (k *keyed) tryLock(key uint64) (unlock func(), ok bool) {
	w := k.join(key)
	select {
	case <-w.token:
		return func() { w.token <- struct{}{}; k.leave(key, w) }, true
	default:
		k.leave(key, w)
		return nil, false
	}
}
