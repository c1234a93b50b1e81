package redisstore

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"maps"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// A primary that fails may lose writes that it had not replicated, and the new primary would then grant quota that is
// already used. The store therefore remembers the last state of each key and the server that returned it. When another
// server may reply, the state is sent as a hint with the next call for the key. The script continues from the later of
// its own state and the hint, unless it runs on the very server that the hint is from: there the state may have been
// reset or refunded since.
//
// A server is identified by its run ID. The script returns it only on request, because reading it costs more than a
// decision. The first call of each epoch requests it. An epoch ends with every event after which another server may
// reply: a lost connection, a new connection, a failed call. Changes without such an event, as behind a proxy or with a
// client of the caller, are noticed because the run ID is also requested once per second.

// failoverHints stores the last states of keys and adds them to calls as hints.
type failoverHints struct {
	off               bool // disabled, in tests
	began             time.Time
	epoch             atomic.Uint64
	failoverSuspected atomic.Bool                   // a call failed since the last epoch ended
	ended             atomic.Int64                  // when an epoch last ended because of failed calls, since began
	asked             atomic.Int64                  // when a run ID was last requested, since began
	ahead             atomic.Int64                  // server clock minus local clock, in microseconds
	origins           []atomic.Pointer[serverEpoch] // the server that replies, by hash slot; one element for a single server
	restored          atomic.Int64
	moved             func() // called when another server replies than before

	seed   maphash.Seed
	shards [hintShards]hintShard
}

// serverEpoch identifies a server that replied, and the epoch in which it did.
type serverEpoch struct {
	epoch  uint64
	server string // its run ID; empty if the ACL does not permit INFO
}

type hintShard struct {
	mu         sync.Mutex // guards the fields below
	lastStates map[uint64]lastState
}

// lastState is the last known state of a key.
type lastState struct {
	state step.State
	words []uint64 // immutable
	from  *serverEpoch
	rule  uint64 // first half of its rule's digest
}

// hint is a lastState that is sent with a call.
type hint struct {
	cell int
	lastState
}

const (
	hintShards = 64
	// maxHintsPerShard is the maximum number of keys per shard of the map.
	maxHintsPerShard = 1024
	// serverIDInterval is how often a run ID is requested without an event, and the minimum time between two epochs
	// that end because of failed calls. In each epoch the first call for each key is slower, and a server that fails
	// because of overload must not receive more such calls.
	serverIDInterval = time.Second
)

func (h *failoverHints) init(cluster bool) {
	h.began, h.seed = time.Now(), maphash.MakeSeed()
	h.asked.Store(-int64(serverIDInterval))
	h.ended.Store(-int64(serverIDInterval))
	slots := 1
	if cluster {
		slots = clusterSlots
	}
	h.origins = make([]atomic.Pointer[serverEpoch], slots)
	for i := range h.shards {
		h.shards[i].lastStates = make(map[uint64]lastState)
	}
}

// dialFunc is the function with which the client opens connections.
type dialFunc = func(ctx context.Context, addr string, by *net.Dialer, secure *tls.Config) (net.Conn, error)

// watch returns a dial function that starts a new epoch for every connection that is opened or closed. A call for which
// the client opens a connection already carries its hints by then.
func (h *failoverHints) watch(dial dialFunc) dialFunc {
	return func(ctx context.Context, addr string, by *net.Dialer, secure *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, addr, by, secure)
		if err != nil {
			return nil, err
		}
		h.epoch.Add(1)
		return &watchedConn{conn, h}, nil
	}
}

type watchedConn struct {
	net.Conn
	by *failoverHints
}

func (c *watchedConn) Close() error {
	c.by.epoch.Add(1)
	return c.Conn.Close()
}

// addHints adds the states that the call's server may not have. now is close to the server's time.
func (h *failoverHints) addHints(c *call, now int64) {
	if h.off {
		return
	}
	since := int64(time.Since(h.began))
	if h.failoverSuspected.Load() && since-h.ended.Load() >= int64(serverIDInterval) && h.failoverSuspected.CompareAndSwap(true, false) {
		h.ended.Store(since)
		h.epoch.Add(1)
	}
	c.epoch = h.epoch.Load()
	if o := h.slot(c).Load(); o != nil && o.epoch == c.epoch {
		c.origin = o
	}
	c.asks = c.origin == nil || since-h.asked.Load() >= int64(serverIDInterval)
	now += h.ahead.Load()
	for i := range c.cells {
		at := &c.cells[i]
		at.hash = maphash.String(h.seed, c.keys[2*i])
		if s, ok := h.recall(at.hash); ok && s.from.mayDiffer(c.origin) && s.state.ExpiresAt > now {
			c.hints = append(c.hints, hint{i, s})
			c.asks, at.hinted = true, true
			c.mixed = c.mixed || s.state.Shape != at.shape
		}
	}
	if c.asks {
		h.asked.Store(since)
	}
}

// mayDiffer reports whether the reply may come from another server than o, or from the same server in a later epoch.
func (o *serverEpoch) mayDiffer(answers *serverEpoch) bool {
	return answers == nil || o.epoch != answers.epoch || o.server != answers.server
}

// slot returns the entry of origins for the call's server.
func (h *failoverHints) slot(c *call) *atomic.Pointer[serverEpoch] {
	if len(h.origins) == 1 {
		return &h.origins[0]
	}
	return &h.origins[slotOf(c.tag)]
}

// packHints appends the hints for the script.
func (c *call) packHints(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(c.hints)))
	for i := range c.hints {
		x := &c.hints[i]
		dst = binary.LittleEndian.AppendUint16(dst, uint16(x.cell+1))
		dst = append(dst, byte(len(x.from.server)))
		dst = append(dst, x.from.server...)
		length := len(dst)
		dst = append(dst, 0, 0)
		state := cell{kind: c.cells[x.cell].kind, state: x.state, words: x.words}
		dst = state.encode(dst)
		binary.LittleEndian.PutUint16(dst[length:], uint16(len(dst)-length-2))
	}
	return dst
}

// failed records that a call failed. A call that its caller cancelled says nothing about the server.
func (h *failoverHints) failed(err error) {
	if !errors.Is(err, context.Canceled) {
		h.failoverSuspected.Store(true)
	}
}

// learn stores the states that a successful call left.
func (h *failoverHints) learn(c *call, r *reply, now int64) {
	if h.off {
		return
	}
	from := c.origin
	switch {
	case r.told:
		h.restored.Add(r.restored)
		h.ahead.Store(r.now - now)
		from = h.recordServer(c, r.server)
	case h.epoch.Load() != c.epoch:
		return // the server that replied is unknown; an earlier hint is still valid
	}
	if from == nil || from.server == "" || len(from.server) > math.MaxUint8 {
		return // no run ID to send with a hint
	}
	for i := range c.cells {
		if at := &c.cells[i]; at.kind < step.Log { // entries of logs are not in replies
			h.remember(at, from, r.now)
		}
	}
}

// recordServer records which server replied to a call.
func (h *failoverHints) recordServer(c *call, server string) *serverEpoch {
	slot := h.slot(c)
	known := slot.Load()
	if known != nil && known.server != server && h.moved != nil {
		h.moved()
	}
	if known != nil && known.epoch == c.epoch {
		if known.server == server {
			return known
		}
		h.epoch.CompareAndSwap(c.epoch, c.epoch+1) // the server has changed without an event
	}
	met := &serverEpoch{epoch: c.epoch, server: server}
	if known == nil || known.epoch < c.epoch {
		slot.CompareAndSwap(known, met)
	}
	return met
}

func (h *failoverHints) shard(hash uint64) *hintShard { return &h.shards[hash%hintShards] }

func (h *failoverHints) recall(hash uint64) (lastState, bool) {
	shard := h.shard(hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	s, ok := shard.lastStates[hash]
	return s, ok
}

// remember stores the state of a cell, unless it has expired.
func (h *failoverHints) remember(at *cell, from *serverEpoch, now int64) {
	shard := h.shard(at.hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	known, ok := shard.lastStates[at.hash]
	switch {
	case ok && known.from.server != from.server && !at.hinted && known.state.ExpiresAt > now:
		return // the stored state is from another server, and this one has not received it
	case at.state.ExpiresAt <= now:
		delete(shard.lastStates, at.hash)
		return
	case !ok && len(shard.lastStates) >= maxHintsPerShard:
		shard.makeRoomLocked(now)
	}
	seen := lastState{state: at.state, from: from, rule: at.rule}
	if at.kind == step.Slices { // marks are not stored: reservations made before the failover are refunded less
		seen.words = at.words
	}
	shard.lastStates[at.hash] = seen
}

// makeRoomLocked evicts a key: of a few random ones, the one that expires first.
func (s *hintShard) makeRoomLocked(now int64) {
	const few = 4
	var first uint64
	tries, soonest := 0, int64(step.MaxTime)
	for hash, seen := range s.lastStates {
		if seen.state.ExpiresAt <= soonest {
			first, soonest = hash, seen.state.ExpiresAt
		}
		if tries++; tries == few || soonest <= now {
			break
		}
	}
	delete(s.lastStates, first)
}

// forget removes the state of a key that the caller has reset.
func (h *failoverHints) forget(stored string) {
	hash := maphash.String(h.seed, stored)
	shard := h.shard(hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	delete(shard.lastStates, hash)
}

// forgetRule removes the states of a rule's keys.
func (h *failoverHints) forgetRule(id group.RuleID) {
	for i := range h.shards {
		shard := &h.shards[i]
		shard.mu.Lock()
		maps.DeleteFunc(shard.lastStates, func(_ uint64, s lastState) bool { return s.rule == id.A })
		shard.mu.Unlock()
	}
}

// FailoverRestores returns how often a failover hint restored state that the server had lost: after a failover that
// lost writes, or after a restart without persistence.
func (s *Store) FailoverRestores() int64 { return s.hints.restored.Load() }
