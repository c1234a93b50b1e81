package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// topFlags are what top is asked.
type topFlags struct {
	live     remoteFlags
	most     int
	near     bool
	watch    bool
	interval time.Duration
}

// maxTopKeys is how many keys top shows: the service does not keep more.
const maxTopKeys = 1000

const topLong = `Show whom a running service has denied most of late, or with --near who is closest to being denied. Counts
fade, so that the last few minutes matter. A ± says that a count may be too high by that much, because the
service keeps only a bounded number of keys.`

const topExample = `  sluice top
  sluice top --near -n 5
  sluice top --watch`

func topCommand() *cobra.Command {
	var f topFlags
	c := withoutArguments("top", "Show who is limited most", topLong, topExample, f.run)
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.Flags().IntVarP(&f.most, "number", "n", 20, "how many to show")
	c.Flags().BoolVar(&f.near, "near", false, "show who has less than a fifth left, instead of who was denied")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "show it again and again")
	term.AddDuration(c, &f.interval, "interval", "", 2*time.Second, "how often, with --watch")
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
		return call(c, &f.live, http.MethodGet, path, nil, admincli.TopScreen(f.near, f.watch))
	}
	if !f.watch {
		return show()
	}
	for {
		if err := show(); err != nil {
			return endOfWatch(c.Context(), err)
		}
		select {
		case <-c.Context().Done():
			return nil
		case <-time.After(f.interval):
		}
	}
}
