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

// WriteStatus writes the status of an instance. It returns term.ErrFindings if the instance is degraded.
func WriteStatus(t *adminmsg.Status, w io.Writer, s term.Style) error {
	degraded := isDegraded(t)
	head := s.Green("healthy")
	if degraded {
		head = s.Red("degraded")
	}
	var b strings.Builder
	line := func(name, text string) { fmt.Fprintf(&b, "%-10s %s\n", name, text) }
	fmt.Fprintf(&b, "%s: sluice %s, up %s since %s\n\n", head, term.Printable(t.Version),
		term.Duration(time.Duration(t.UptimeSeconds)*time.Second), term.Clock(t.StartedAt))
	line("store", storeText(&t.Store, s))
	for _, text := range unavailableText(&t.Store) {
		line("", s.Red(text))
	}
	switch n := t.Store.Instances; {
	case n == 0:
		line("instances", s.Yellow("unknown yet: while the store is unavailable, 1 request per key and window is allowed"))
	case n > 1:
		line("instances", fmt.Sprintf("%d share the store", n))
	}
	if t.Unready != "" {
		line("not ready", s.Red(term.Printable(t.Unready)))
	}
	r := &t.Rules
	line("rules", fmt.Sprintf("%s, %s, loaded %s, digest %s",
		term.Count(r.SluiceRules, "rule"), term.Count(r.EnvoyDomains, "Envoy domain"), term.Clock(r.LoadedAt), term.Printable(r.Digest)))
	for _, file := range r.Files {
		line("", term.Printable(file))
	}
	if r.LastError != nil {
		line("", s.Red("reload failed "+term.Clock(r.LastError.Time)+": the previous rule set stays in use:"))
		for text := range strings.Lines(r.LastError.Message) {
			line("", term.Printable(strings.TrimRight(text, "\n")))
		}
	}
	if len(t.Suspended) > 0 {
		line("suspended", s.Yellow(term.Printable(strings.Join(t.Suspended, ", ")))+"; to undo: sluice resume "+arguments(t.Suspended))
	}
	for i, e := range t.Store.History[:min(shownBreakerEvents, len(t.Store.History))] {
		line([]string{"breaker", ""}[min(i, 1)], breakerText(&e))
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

// isDegraded reports whether the status needs an operator: the store or a shard is unavailable, the last reload failed, the
// service is not ready, or a rule is suspended.
func isDegraded(t *adminmsg.Status) bool {
	return !t.Store.Up || slices.ContainsFunc(t.Store.Servers, func(s adminmsg.ServerStatus) bool { return !s.Up }) ||
		t.Rules.LastError != nil || t.Unready != "" || len(t.Suspended) > 0
}

// shownBreakerEvents is the number of breaker events in the text; JSON has more.
const shownBreakerEvents = 6

func storeText(t *adminmsg.StoreStatus, s term.Style) string {
	text := term.Printable(t.Kind)
	down, addresses := 0, []string{}
	for _, server := range t.Servers {
		if !server.Up {
			down++
		}
		for _, address := range strings.Split(server.Address, ",") {
			if address != "" && !slices.Contains(addresses, address) {
				addresses = append(addresses, address)
			}
		}
	}
	if len(addresses) > 0 {
		text += " " + term.Printable(strings.Join(addresses, ", "))
	}
	switch {
	case !t.Up:
		return text + ": " + s.Red("unavailable: on_failure of each rule decides")
	case down > 0:
		return text + ": " + s.Red(fmt.Sprintf("%d of %s unavailable: on_failure of each rule decides for their keys", down, term.Count(len(t.Servers), "shard")))
	}
	return text + ": available"
}

// unavailableText returns a line for each error of the store: that of the ping, and those of open circuit breakers.
func unavailableText(t *adminmsg.StoreStatus) (lines []string) {
	if t.Error != "" {
		lines = append(lines, term.Printable(t.Error))
	}
	for i := range t.Servers {
		server := &t.Servers[i]
		if server.Since == nil {
			continue
		}
		text := fmt.Sprintf("%s: circuit breaker open since %s: %s",
			serverText(server.Address, server.Shard), term.Clock(*server.Since), term.Printable(server.Error))
		lines = append(lines, text)
	}
	return lines
}

// serverText names a shard by its address and its number, which is the label of its metrics.
func serverText(address string, shard int) string {
	if address == "" {
		return fmt.Sprintf("shard %d", shard)
	}
	return fmt.Sprintf("%s (shard %d)", term.Printable(address), shard)
}

func breakerText(e *adminmsg.BreakerEvent) string {
	if e.Breaker == "open" {
		return fmt.Sprintf("%s opened, %s: %s", term.Clock(e.Time), serverText(e.Server, e.Shard), term.Printable(e.Error))
	}
	return fmt.Sprintf("%s closed, %s", term.Clock(e.Time), serverText(e.Server, e.Shard))
}

// WriteRules writes a table of rules and their decisions.
func WriteRules(t *adminmsg.Rules, w io.Writer, _ term.Style) error {
	rows := [][]string{{"rule", "limit", "per", term.Right("allowed", 9), term.Right("denied", 9), term.Right("shadow-denied", 13), ""}}
	for i := range t.Rules {
		r := &t.Rules[i]
		var notes []string
		if r.Suspended {
			notes = append(notes, "suspended")
		}
		if r.Shadow {
			notes = append(notes, "shadow mode")
		}
		rows = append(rows, []string{
			term.Printable(r.Name), term.Printable(r.LimitText()), term.Printable(strings.Join(r.Per, ", ")),
			term.Right(term.Thousands(r.Allowed), 9), term.Right(term.Thousands(r.Denied), 9), term.Right(term.Thousands(r.ShadowDenied), 13),
			strings.Join(notes, ", "),
		})
	}
	return term.Table(w, rows)
}
