package admincli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

func WriteStatus(t *adminmsg.Status, w io.Writer, s term.Style) error {
	degraded := !t.Store.Up || t.Rules.LastError != nil || t.Unready != ""
	head := s.Green("fine")
	if degraded {
		head = s.Red("degraded")
	}
	var b strings.Builder
	line := func(name, text string) { fmt.Fprintf(&b, "%-10s %s\n", name, text) }
	fmt.Fprintf(&b, "%s: sluice %s, up %s since %s\n\n", head, term.Printable(t.Version),
		term.Duration(time.Duration(t.UptimeSeconds)*time.Second), term.Clock(t.Started))
	line("store", storeText(&t.Store, s))
	switch n := t.Store.Instances; {
	case n == 0:
		line("instances", s.Yellow("not known yet: while the store is unavailable, 1 per key and window is allowed"))
	case n > 1:
		line("instances", fmt.Sprintf("%d share the store", n))
	}
	if t.Unready != "" {
		line("not ready", s.Red(term.Printable(t.Unready)))
	}
	r := &t.Rules
	line("rules", fmt.Sprintf("%s, %s, read %s, digest %s",
		term.Count(r.Native, "rule"), term.Count(r.Domains, "Envoy domain"), term.Clock(r.LoadedAt), term.Printable(r.Digest)))
	for _, file := range r.Files {
		line("", term.Printable(file))
	}
	if r.LastError != nil {
		line("", s.Red("the files cannot be used since "+term.Clock(r.LastError.At)+", and these rules are kept:"))
		for text := range strings.Lines(r.LastError.Text) {
			line("", term.Printable(strings.TrimRight(text, "\n")))
		}
	}
	if len(t.Suspended) > 0 {
		line("suspended", s.Yellow(term.Printable(strings.Join(t.Suspended, ", ")))+"; to undo: sluice resume "+commandWords(t.Suspended))
	}
	var listeners []string
	for _, name := range slices.Sorted(maps.Keys(t.Listeners)) {
		listeners = append(listeners, term.Printable(name+" "+t.Listeners[name]))
	}
	line("listeners", strings.Join(listeners, ", "))
	line("log level", term.Printable(t.LogLevel))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	if degraded {
		return term.ErrFindings
	}
	return nil
}

// commandWords are words as a shell takes them.
func commandWords(all []string) string {
	out := make([]string, len(all))
	for i, word := range all {
		out[i] = term.ShellQuoted(word)
	}
	return strings.Join(out, " ")
}

func storeText(t *adminmsg.StoreStatus, s term.Style) string {
	text := term.Printable(t.Kind)
	away := 0
	for _, server := range t.Servers {
		if !server.Up {
			away++
		}
	}
	switch {
	case !t.Up:
		return text + ", " + s.Red("does not answer: rules' on_failure does")
	case away > 0:
		return text + ", " + s.Yellow(fmt.Sprintf("%d of %s away: rules' on_failure answers for what they hold", away, term.Count(len(t.Servers), "server")))
	case len(t.Servers) > 1:
		return text + ", all " + term.Count(len(t.Servers), "server") + " answer"
	}
	return text + ", answers"
}

func WriteRules(t *adminmsg.Rules, w io.Writer, _ term.Style) error {
	rows := [][]string{{"rule", "limit", "per", term.Right("allowed", 9), term.Right("denied", 9), term.Right("shadow", 9), ""}}
	for i := range t.Rules {
		r := &t.Rules[i]
		var notes []string
		if r.Suspended {
			notes = append(notes, "suspended")
		}
		if r.Shadow {
			notes = append(notes, "in shadow")
		}
		rows = append(rows, []string{
			term.Printable(r.Name), term.Printable(r.LimitText()), term.Printable(strings.Join(r.Per, ", ")),
			term.Right(term.Thousands(r.Allowed), 9), term.Right(term.Thousands(r.Denied), 9), term.Right(term.Thousands(r.ShadowDenied), 9),
			strings.Join(notes, ", "),
		})
	}
	return term.Table(w, rows)
}
