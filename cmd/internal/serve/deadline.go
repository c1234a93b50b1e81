package serve

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
)

// endGrace is how long the service may take to end beyond drain.wait and drain.timeout.
const endGrace = 5 * time.Second

// endInTime ends the process if the service has not ended in time after it was to, because nothing that hangs, such as a
// file on a server that is gone, may keep it; and at once on a second signal. The function that it returns is called when the
// service has ended.
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
				timer := time.NewTimer(drain.Wait + drain.Timeout + endGrace)
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
		// After a second signal log.exit holds the lock until it ends the process: the orderly end, which may be done before the
		// last lines are written, must not exit with another code.
		log.mu.Lock()
		defer log.mu.Unlock()
		close(done)
	}
}
