package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// topFlags are what top is asked.
type topFlags struct {
	out      term.Output
	live     liveFlags
	most     int
	near     bool
	watch    bool
	interval time.Duration
}

// mostTop is how many keys top shows: the service does not keep more.
const mostTop = 1000

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
	if f.most < 1 || f.most > mostTop {
		return fmt.Errorf("-n %d: write 1 to %d", f.most, mostTop)
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
			if f.watch && terminal(w) {
				fmt.Fprint(w, clearScreen)
			}
			return writeTop(t, f.near, w, s)
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

const (
	clearScreen = "\x1b[H\x1b[2J"
	minInterval = 100 * time.Millisecond
)

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

// endOfWatch is no error if somebody pressed ctrl-C.
func endOfWatch(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// terminal tells whether somebody looks at the output.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func writeTop(t *adminmsg.Top, near bool, w io.Writer, s term.Style) error {
	what := "denied"
	if near {
		what = "near their limit"
	}
	if len(t.Entries) == 0 {
		_, err := fmt.Fprintf(w, "nobody was %s of late\n", what)
		return err
	}
	var total int64
	for i := range t.Entries {
		total += t.Entries[i].Count
	}
	rows := [][]string{{"count", "±", "rule", "key", "share"}}
	for i := range t.Entries {
		e := &t.Entries[i]
		key := keyText(e.Key)
		if key == "" {
			key = "(everybody)"
		}
		share := float64(e.Count) / float64(max(1, total))
		rows = append(rows, []string{
			right(term.Thousands(e.Count), 9), right(term.Thousands(e.Error), 5), term.Printable(e.Rule), key,
			fmt.Sprintf("%s %.0f %%", shareBar(share, 20), 100*share),
		})
	}
	rows[0][0], rows[0][1] = right("count", 9), right("±", 5)
	fmt.Fprintln(w, s.Bold("most "+what+" of late"))
	if err := term.Table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, s.Faint("\nto look closer: sluice peek "+bucketText(t.Entries[0].Rule, t.Entries[0].Key)))
	return err
}

// right puts a text to the right of a column.
func right(text string, columns int) string {
	return strings.Repeat(" ", max(0, columns-term.Width(text))) + text
}

// shareBar draws a share of 1 in so many columns, by eighths of one.
func shareBar(share float64, columns int) string {
	eighths := int(share*float64(8*columns) + 0.5)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text + strings.Repeat(" ", columns-term.Width(text))
}
