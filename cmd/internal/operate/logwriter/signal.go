package logwriter

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// SecondSignal returns a channel that is closed when the process has received SIGINT or SIGTERM twice. The first signal
// starts the graceful shutdown. After the second one the process writes buffered log lines and exits. Signals are counted from
// the call until stop is called.
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
