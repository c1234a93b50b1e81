package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// topFlags are what top is asked.
type topFlags struct {
	out      term.Output
	live     remoteFlags
	most     int
	near     bool
	watch    bool
	interval time.Duration
}

// maxTopKeys is how many keys top shows: the service does not keep more.
const maxTopKeys = 1000

func topCommand() *cobra.Command {
	var f topFlags
	c := &cobra.Command{
		Use:   "top",
		Short: "Show who is limited most",
		Long: "Show whom a running service has denied most of late, or with --near who is closest to being denied. Counts\n" +
			"fade, so that the last few minutes matter. A ± says that a count may be too high by that much, because the\n" +
			"service keeps only a bounded number of keys.",
		Example: "  sluice top\n" +
			"  sluice top --near -n 5\n" +
			"  sluice top --watch",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.out.AddFlag(c)
	c.Flags().IntVarP(&f.most, "number", "n", 20, "how many to show")
	c.Flags().BoolVar(&f.near, "near", false, "show who has less than a fifth left, instead of who was denied")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "show it again and again")
	c.Flags().DurationVar(&f.interval, "interval", 2*time.Second, "how often, with --watch")
	f.live.adminFlags(c)
	term.CompleteFlag(c, "number")
	term.CompleteFlag(c, "interval", "1s", "2s", "10s")
	return c
}

func (f *topFlags) run(c *cobra.Command) error {
	if f.most < 1 || f.most > maxTopKeys {
		return fmt.Errorf("-n %d: write 1 to %d", f.most, maxTopKeys)
	}
	if f.interval < minInterval {
		return fmt.Errorf("--interval %s: write at least %s", f.interval, minInterval)
	}
	by := "denied"
	if f.near {
		by = "near"
	}
	path := fmt.Sprintf("/v1/top?by=%s&n=%d", by, f.most)
	show := func() error {
		return call(c, &f.live, &f.out, http.MethodGet, path, nil, func(t *adminmsg.Top, w io.Writer, s term.Style) error {
			if f.watch && term.IsTerminal(w) {
				fmt.Fprint(w, term.ClearScreen)
			}
			return admincli.WriteTop(t, f.near, w, s)
		})
	}
	if !f.watch {
		return show()
	}
	for first := true; ; first = false {
		if !first && !waitFor(c.Context(), f.interval) {
			return nil
		}
		if err := show(); err != nil {
			return endOfWatch(c.Context(), err)
		}
	}
}

// waitFor waits, and tells whether to go on.
func waitFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
