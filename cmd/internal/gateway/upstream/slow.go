package upstream

import (
	"container/list"
	"sync"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// What a server that speaks HTTP/2 sends ahead of a client that does not read is held here. h2Window bounds it for a
// response and maxSlowWriters the number of responses, so h2Window × maxSlowWriters is the most that is held in the process. A
// connection's window is twice that: slow clients, wherever they come from, never use up the window that others share with them.
const (
	h2Window       = 256 << 10
	maxSlowWriters = 1024
	h2ConnWindow   = 2 * maxSlowWriters * h2Window
)

// slowWriters are the responses of HTTP/2 servers that wait for their clients to read. Those that wait longest are broken
// off while there are too many. A client that reads, however slowly, begins to wait anew with each piece.
type slowWriters struct {
	limit int

	mu      sync.Mutex
	waiting list.List // of *slowWriter; the first has waited longest
}

type slowWriter struct {
	x    *roundTrip
	turn int
}

// allSlow is of all groups: memory is one.
var allSlow = &slowWriters{limit: maxSlowWriters}

// enter adds a response that may have to wait for its client.
func (s *slowWriters) enter(rt *roundTrip) *list.Element {
	s.mu.Lock()
	e := s.waiting.PushBack(&slowWriter{rt, rt.attempt})
	var longest *slowWriter
	if s.waiting.Len() > s.limit {
		longest = s.waiting.Remove(s.waiting.Front()).(*slowWriter)
	}
	s.mu.Unlock()
	if longest != nil {
		bounds.SlowResponses.Reached()
		longest.x.expire(longest.turn, crowdedOut)
	}
	return e
}

// leave removes a response whose client has read.
func (s *slowWriters) leave(e *list.Element) {
	s.mu.Lock()
	s.waiting.Remove(e) // does nothing if it has been broken off
	s.mu.Unlock()
}
