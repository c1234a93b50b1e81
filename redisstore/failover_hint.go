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

// A server that dies may take with it what it had not yet passed on, and who takes over would hand out a budget that is
// spent. So the store remembers what it last saw of each key and whose word that was, and when it may be another server
// that answers, this goes along with the next call as a hint. The script takes the later of what it has and the hint,
// unless it runs on the very server that gave it: there, what the hint says may have been reset or given back since.
//
// Which server answers is known by its run ID. The script says it only when asked, because finding out costs more than
// a decision. It is asked by the first call of each epoch, and an epoch ends with everything that may bring another
// server: a lost connection, a new one, a call that failed. What changes without either, as behind a proxy or with a client that is
// not our own, is noticed by asking every second.

// failoverHints remembers states and sends them along.
type failoverHints struct {
	off               bool // in tests
	began             time.Time
	epoch             atomic.Uint64
	failoverSuspected atomic.Bool                   // a call failed, and the epoch has not ended yet
	ended             atomic.Int64                  // when it did so for that reason, since began
	asked             atomic.Int64                  // when a server was last asked which it is, since began
	ahead             atomic.Int64                  // by how much the server's clock is ahead of ours, in microseconds
	origins           []atomic.Pointer[serverEpoch] // who answers, by slot; on a single server there is one
	restored          atomic.Int64
	moved             func() // another server answers than before

	seed   maphash.Seed
	shards [hintShards]hintShard
}

// serverEpoch is a server that answers, or did.
type serverEpoch struct {
	epoch  uint64
	server string // its run ID; empty if it may not say
}

type hintShard struct {
	mu         sync.Mutex // guards the following
	lastStates map[uint64]lastState
}

// lastState is what was last seen of a key.
type lastState struct {
	state step.State
	words []uint64 // nobody changes them any more
	from  *serverEpoch
	rule  uint64 // a part of its rule's digest
}

// hint is a sighting on its way to the server.
type hint struct {
	cell int
	lastState
}

const (
	hintShards = 64
	// maxHintsPerShard is how many keys a shard remembers.
	maxHintsPerShard = 1024
	// serverIDInterval is how often a server is asked which it is though nothing has happened, and the least time between two
	// epochs that end because of failed calls: the first call for each key is a slow one in each, which a server that
	// fails because it has too much to do must be spared.
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

// dialFunc is how the client makes connections.
type dialFunc = func(ctx context.Context, addr string, by *net.Dialer, secure *tls.Config) (net.Conn, error)

// watch has every connection that is made begin a new epoch, and every one that is closed: a call for which a connection
// is made has its hints before.
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

// addHints adds to a call what its server may not know. now is near the server's time.
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

// mayDiffer tells that another server may answer than this one, or this one after something happened.
func (o *serverEpoch) mayDiffer(answers *serverEpoch) bool {
	return answers == nil || o.epoch != answers.epoch || o.server != answers.server
}

// slot is where the call's server is noted.
func (h *failoverHints) slot(c *call) *atomic.Pointer[serverEpoch] {
	if len(h.origins) == 1 {
		return &h.origins[0]
	}
	return &h.origins[slotOf(c.tag)]
}

// packHints writes the hints.
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

// failed notes that a call was not answered. Who only lost patience with a server says nothing about it.
func (h *failoverHints) failed(err error) {
	if !errors.Is(err, context.Canceled) {
		h.failoverSuspected.Store(true)
	}
}

// learn remembers what a call that was answered has left.
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
		return // whose word this is cannot be told; a hint of before is still good
	}
	if from == nil || from.server == "" || len(from.server) > math.MaxUint8 {
		return // no name that could go with a hint
	}
	for i := range c.cells {
		if at := &c.cells[i]; at.kind < step.Log { // whose entries are not sent to us
			h.remember(at, from, r.now)
		}
	}
}

// recordServer notes which server answers a call.
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
		h.epoch.CompareAndSwap(c.epoch, c.epoch+1) // it has changed, and nothing said so
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

// remember keeps what a cell has become, unless that is nothing.
func (h *failoverHints) remember(at *cell, from *serverEpoch, now int64) {
	shard := h.shard(at.hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	known, ok := shard.lastStates[at.hash]
	switch {
	case ok && known.from.server != from.server && !at.hinted && known.state.ExpiresAt > now:
		return // another server's word, and this one has not been told
	case at.state.ExpiresAt <= now:
		delete(shard.lastStates, at.hash)
		return
	case !ok && len(shard.lastStates) >= maxHintsPerShard:
		shard.makeRoomLocked(now)
	}
	seen := lastState{state: at.state, from: from, rule: at.rule}
	if at.kind == step.Slices { // marks stay behind: what was out then is given back less
		seen.words = at.words
	}
	shard.lastStates[at.hash] = seen
}

// makeRoomLocked forgets a key: of a few that chance offers, the one that wears off first.
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

// forget drops what was seen of a key, which the caller has reset.
func (h *failoverHints) forget(stored string) {
	hash := maphash.String(h.seed, stored)
	shard := h.shard(hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	delete(shard.lastStates, hash)
}

// forgetRule drops what was seen of a rule's keys.
func (h *failoverHints) forgetRule(id group.RuleID) {
	for i := range h.shards {
		shard := &h.shards[i]
		shard.mu.Lock()
		maps.DeleteFunc(shard.lastStates, func(_ uint64, s lastState) bool { return s.rule == id.A })
		shard.mu.Unlock()
	}
}

// FailoverRestores is how many times a server had forgotten what it, or the one before it, had told this process about a key, and
// was told: after a failover that lost writes, or a restart without them.
func (s *Store) FailoverRestores() int64 { return s.hints.restored.Load() }
