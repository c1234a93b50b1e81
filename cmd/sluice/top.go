package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// topFlags are the flags of the top command.
type topFlags struct {
	live     remoteFlags
	limit    int
	near     bool
	watch    bool
	interval time.Duration
}

// maxTopKeys is the maximum number of keys that the service tracks.
const maxTopKeys = 1000

const topLong = `Show the keys denied most often in the last minutes, or with --near-limit the keys closest to their limit. Counts decay,
so that the last few minutes dominate. The column ± is the maximum error of a count: the service tracks a bounded number
of keys, so that a count may be too high by that number.`

const topExample = `  sluice top
  sluice top --near-limit -n 5
  sluice top --watch`

func topCommand() *cobra.Command {
	var f topFlags
	c := withoutArguments("top", "Show the keys that are denied most often", topLong, topExample, f.run)
	c.ValidArgsFunction = cobra.NoFileCompletions
	term.AddNumber(c, &f.limit, "limit", "n", 20, 1, maxTopKeys, "maximum number of keys to show", "")
	c.Flags().BoolVar(&f.near, "near-limit", false, "show keys with less than 20 % of their limit left instead of denied keys")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "refresh until ctrl-C")
	term.AddDuration(c, &f.interval, "interval", "", 2*time.Second, "time between refreshes with --watch")
	f.live.adminFlags(c)
	term.CompleteFlag(c, "limit")
	term.CompleteFlag(c, "interval", "1s", "2s", "10s")
	return c
}

func (f *topFlags) run(c *cobra.Command) error {
	if f.interval < minInterval {
		return fmt.Errorf("--interval %s: write a duration of at least %s", f.interval, minInterval)
	}
	by := "denied"
	if f.near {
		by = "near_limit"
	}
	path := fmt.Sprintf("/v1/top?by=%s&limit=%d", by, f.limit)
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
