package bench

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// progress shows the progress of a load test: a bar on a terminal, a line every 5 s elsewhere.
type progress struct {
	w        *logwriter.Writer // buffered, so that a blocked output does not stop the load
	terminal bool
	plan     *loadgen.Plan
	told     time.Duration
}

const (
	progressWidth = 24
	plainInterval = 5 * time.Second
)

func newProgress(w io.Writer, p *loadgen.Plan) *progress {
	return &progress{w: logwriter.New(logwriter.Config{Output: w}), plan: p, terminal: term.IsTerminal(w)}
}

func (b *progress) tell(p loadgen.Progress) {
	if p.Elapsed < b.told { // warm-up is over
		b.told = 0
	}
	done, phase := b.share(p), ""
	if p.Warmup {
		phase = "warming up, "
	}
	text := fmt.Sprintf("%s%v, %.0f/s, p99 %v, %d allowed, %d denied, %d errors",
		phase, p.Elapsed.Round(time.Second), p.PerSecond, loadgen.Round(p.P99), p.Allowed, p.Denied, p.Failed)
	switch {
	case b.terminal:
		full := min(progressWidth, int(done*progressWidth))
		fmt.Fprintf(b.w, "\r\x1b[K[%s%s] %s", strings.Repeat("=", full), strings.Repeat(" ", progressWidth-full), text)
	case p.Elapsed-b.told >= plainInterval:
		b.told = p.Elapsed
		fmt.Fprintf(b.w, "sluice bench: %s\n", text)
	}
}

// share returns the completed part, from 0 to 1.
func (b *progress) share(p loadgen.Progress) float64 {
	if p.Warmup {
		return p.Elapsed.Seconds() / b.plan.Warmup.Seconds()
	}
	share := p.Elapsed.Seconds() / b.plan.Duration.Seconds()
	if b.plan.Requests > 0 {
		share = max(share, float64(p.Allowed+p.Denied+p.Failed)/float64(b.plan.Requests))
	}
	return share
}

// end clears the bar and closes the output. tell must not be called after it.
func (b *progress) end() {
	if b.terminal {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
	_ = b.w.Close(term.OutputTimeout)
}
