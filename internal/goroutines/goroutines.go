// Package goroutines has an owner wait for the goroutines that it has started.
package goroutines

import "sync"

// Group is the goroutines of one owner. Unlike a [sync.WaitGroup] it may be closed while others still try to start some.
type Group struct {
	mu      sync.Mutex // guards closed, and that none starts after it
	closed  bool
	running sync.WaitGroup
}

// Go runs f on a goroutine of its own, unless the group is closed. It tells whether it does.
func (g *Group) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.running.Go(f)
	return true
}

// Close has nothing start any more, and waits for what has.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.running.Wait()
}
