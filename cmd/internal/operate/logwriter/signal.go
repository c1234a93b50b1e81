package logwriter

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// SecondSignal returns a channel that is closed when the process has received SIGINT or SIGTERM twice. The first has it end in
// good order; the second means that it is to end now, and the lines that wait are all that is left to write. Signals are counted
// from the call until stop.
func SecondSignal() (second <-chan struct{}, stop func()) {
	signals, twice, done := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for range 2 {
			select {
			case <-signals:
			case <-done:
				return
			}
		}
		close(twice)
	}()
	return twice, sync.OnceFunc(func() {
		signal.Stop(signals)
		close(done)
	})
}
