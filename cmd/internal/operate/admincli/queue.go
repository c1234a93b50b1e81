package admincli

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// WriteQueue writes the counts of the queue and a table of its items.
func WriteQueue(p *adminmsg.QueuePage, w io.Writer, s term.Style) error {
	n := &p.Counts
	head := fmt.Sprintf("%s queued, %s delivering, %s dead, %s done or cancelled; %s", term.Thousands(n.Queued), term.Thousands(n.Delivering), term.Thousands(n.Dead),
		term.Thousands(n.Ended), bytesText(n.Bytes))
	if n.Queued+n.Delivering > 0 {
		head += ", oldest item " + term.Seconds(n.OldestAgeSeconds).String() + " old"
	}
	if !n.Up {
		head = s.Red("queue unavailable: ") + head
	}
	if _, err := fmt.Fprintln(w, head); err != nil || len(p.Items) == 0 {
		return err
	}
	rows := [][]string{{"id", "state", "accepted", term.Right("attempts", 8), "key", "error"}}
	for i := range p.Items {
		it := &p.Items[i]
		rows = append(rows, []string{
			term.Printable(it.ID), itemState(it.State, s), term.Clock(it.Accepted), term.Right(fmt.Sprint(it.Attempts), 8), bucketText(it.Rule, it.Key), term.Printable(it.Error),
		})
	}
	if err := term.Table(w, rows); err != nil || p.NextPageToken == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "more items: --page-token %s\n", term.Printable(p.NextPageToken))
	return err
}

func itemState(state string, s term.Style) string {
	switch state {
	case "dead":
		return s.Red(state)
	case "done":
		return s.Green(state)
	}
	return term.Printable(state)
}

func bytesText(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// WriteItem writes one queue item.
func WriteItem(it *adminmsg.QueueItem, w io.Writer, s term.Style) error {
	var b strings.Builder
	line := func(name, text string) { fmt.Fprintf(&b, "%-12s %s\n", name, text) }
	at := func(name string, t *time.Time) {
		if t != nil {
			line(name, term.Clock(*t))
		}
	}
	line("id", term.Printable(it.ID))
	line("state", itemState(it.State, s))
	line("key", bucketText(it.Rule, it.Key))
	line("accepted", term.Clock(it.Accepted))
	line("attempts", fmt.Sprint(it.Attempts))
	if it.Position > 0 {
		line("position", fmt.Sprint(it.Position))
	}
	at("next attempt", it.NextAttempt)
	at("changed", it.Changed)
	at("expires", it.Expires)
	if it.Error != "" {
		line("error", term.Printable(it.Error))
	}
	if r := it.Result; r != nil {
		line("response", strings.TrimSpace(fmt.Sprintf("%d %s, %s", r.Status, http.StatusText(r.Status), bytesText(int64(len(r.Body)+len(r.BodyBase64))))))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
