package upstream

import (
	"container/list"
	"sync"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// Data that an HTTP/2 server sends and the client does not read is buffered in this process. h2Window bounds it per response
// and maxSlowWriters the number of such responses, so that the process buffers at most h2Window × maxSlowWriters. The window of a
// connection is twice that, so that slow clients never use up the window that others share with them.
const (
	h2Window       = 256 << 10
	maxSlowWriters = 1024
	h2ConnWindow   = 2 * maxSlowWriters * h2Window
)

// slowWriters tracks the responses of HTTP/2 servers that wait for their clients to read. If there are too many, it aborts those
// that have waited longest. The waiting time of a client restarts with each piece that it reads.
type slowWriters struct {
	limit int

	mu      sync.Mutex
	waiting list.List // *slowWriter; the first has waited longest
}

type slowWriter struct {
	x    *roundTrip
	turn int
}

// allSlow is shared by all groups, because they share the memory of the process.
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
	s.waiting.Remove(e) // does nothing if it was aborted
	s.mu.Unlock()
}
