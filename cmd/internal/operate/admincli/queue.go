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

func WriteQueue(p *adminmsg.QueuePage, w io.Writer, s term.Style) error {
	n := &p.Counts
	head := fmt.Sprintf("%s queued, %s delivering, %s dead, %s done or cancelled; %s", term.Thousands(n.Queued), term.Thousands(n.Delivering), term.Thousands(n.Dead),
		term.Thousands(n.Ended), bytesText(n.Bytes))
	if n.Queued+n.Delivering > 0 {
		head += ", the oldest for " + term.Seconds(n.OldestSeconds).String()
	}
	if !n.Up {
		head = s.Red("the queue cannot be written: ") + head
	}
	if _, err := fmt.Fprintln(w, head); err != nil || len(p.Items) == 0 {
		return err
	}
	rows := [][]string{{"id", "state", "accepted", term.Right("tries", 5), "whose", ""}}
	for i := range p.Items {
		it := &p.Items[i]
		rows = append(rows, []string{
			term.Printable(it.ID), itemState(it.State, s), term.Clock(it.Accepted), term.Right(fmt.Sprint(it.Attempts), 5), bucketText(it.Rule, it.Key), term.Printable(it.Error),
		})
	}
	if err := term.Table(w, rows); err != nil || p.Next == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "there are more: --after %s\n", term.Printable(p.Next))
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

func WriteItem(it *adminmsg.QueueItem, w io.Writer, s term.Style) error {
	var b strings.Builder
	line := func(name, text string) { fmt.Fprintf(&b, "%-9s %s\n", name, text) }
	at := func(name string, t *time.Time) {
		if t != nil {
			line(name, term.Clock(*t))
		}
	}
	line("id", term.Printable(it.ID))
	line("state", itemState(it.State, s))
	line("whose", bucketText(it.Rule, it.Key))
	line("accepted", term.Clock(it.Accepted))
	line("tries", fmt.Sprint(it.Attempts))
	if it.Position > 0 {
		line("place", fmt.Sprint(it.Position))
	}
	at("next", it.Next)
	at("changed", it.Changed)
	at("expires", it.Expires)
	if it.Error != "" {
		line("error", term.Printable(it.Error))
	}
	if r := it.Result; r != nil {
		line("answer", strings.TrimSpace(fmt.Sprintf("%d %s, %s", r.Status, http.StatusText(r.Status), bytesText(int64(len(r.Body)+len(r.BodyBase64))))))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
