package serve

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
)

// endGrace is the time for shutdown in addition to drain.delay and drain.timeout.
const endGrace = 5 * time.Second

// endInTime exits the process if the service has not shut down in time after ctx is done, because a blocked call, such as a
// write to an unavailable network file system, could delay it forever. It exits at once on a second signal. The returned
// function must be called when the service has shut down.
func endInTime(ctx context.Context, drain *config.Drain, log *serviceLog) (ended func()) {
	done := make(chan struct{})
	second, stop := logwriter.SecondSignal()
	go func() {
		defer stop()
		var late <-chan time.Time
		ending := ctx.Done()
		for {
			select {
			case <-ending:
				ending = nil
				timer := time.NewTimer(drain.Delay + drain.Timeout + endGrace)
				defer timer.Stop()
				late = timer.C
			case <-late:
				log.exit("shutdown timed out: exiting")
			case <-second:
				log.exit("second signal received: exiting")
			case <-done:
				return
			}
		}
	}()
	return func() {
		// After a second signal log.exit holds the lock until the process exits. Without the lock, a graceful shutdown that ends
		// before the last lines are written could exit with another code.
		log.mu.Lock()
		defer log.mu.Unlock()
		close(done)
	}
}
