// Package goroutines lets an owner wait for the goroutines that it has started.
package goroutines

import "sync"

// Group is the goroutines of one owner. Unlike a [sync.WaitGroup] it may be closed while Go is called concurrently.
type Group struct {
	mu      sync.Mutex // guards closed, so that no goroutine starts after Close
	closed  bool
	running sync.WaitGroup
}

// Go runs f on a new goroutine unless the group is closed. It reports whether f runs.
func (g *Group) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.running.Go(f)
	return true
}

// Close prevents further goroutines from starting and waits for those that run.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.running.Wait()
}
