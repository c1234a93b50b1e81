package goroutines

import (
	"testing"
	"testing/synctest"
)

// Close waits for running goroutines, and none starts after it.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		release, closed := make(chan struct{}), make(chan struct{})
		if !g.Go(func() { <-release }) {
			t.Fatal("nothing starts")
		}
		go func() {
			g.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close did not wait")
		default:
		}
		if g.Go(func() { t.Error("it runs") }) {
			t.Error("a goroutine started after Close")
		}
		close(release)
		<-closed
	})
}
