package serve

import (
	"context"
	"os"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// endGrace is how long the service may take to end beyond drain.wait and drain.timeout.
const endGrace = 5 * time.Second

// endInTime ends the process if the service has not ended in time after it was to, because nothing that hangs, such as a
// file on a server that is gone, may keep it. The function that it returns is called when the service has ended.
func endInTime(ctx context.Context, drain *config.Drain, log *serviceLog) (ended func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-done:
			return
		}
		timer := time.NewTimer(drain.Wait + drain.Timeout + endGrace)
		defer timer.Stop()
		select {
		case <-timer.C:
			log.Error("shutdown timed out: exiting")
			log.close()
			os.Exit(term.ExitFindings)
		case <-done:
		}
	}()
	return func() { close(done) }
}
