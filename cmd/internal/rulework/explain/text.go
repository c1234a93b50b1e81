package explain

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// WriteText writes an explanation as text.
func WriteText(w io.Writer, x *Result) error {
	s := term.NewStyle(w)
	var b strings.Builder
	verdict := s.Green(x.Outcome)
	if x.Outcome == "denied" || x.Outcome == "rejected" {
		verdict = s.Red(x.Outcome)
	}
	fmt.Fprintf(&b, "%s\n%s: %s\n", s.Bold(term.Printable(x.Request)), verdict, term.Printable(x.Reason))
	writeLoad(&b, s, x.LoadClass)
	for i := range x.Rules {
		writeRule(&b, s, &x.Rules[i])
	}
	for i := range x.Descriptors {
		d := &x.Descriptors[i]
		fmt.Fprintf(&b, "\n%s\n", s.Bold(term.Printable(d.Entries)))
		for _, step := range d.Steps {
			fmt.Fprintf(&b, "  %s\n", term.Printable(step))
		}
		writeLimits(&b, d.Limits)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeLoad writes the load-shedding class of the request.
func writeLoad(b *strings.Builder, s term.Style, l *LoadClass) {
	if l == nil {
		return
	}
	at := ""
	if l.File != "" {
		at = s.Faint(fmt.Sprintf("  %s:%d", term.Printable(l.File), l.Line))
	}
	limit := "never shed"
	if l.AdaptiveLimit != "" {
		limit = fmt.Sprintf("adaptive limit %s, %d to %d requests in flight", term.Printable(l.AdaptiveLimit), l.Min, l.Max)
	}
	if l.Shadow {
		limit += ", shadow mode"
	}
	fmt.Fprintf(b, "priority %s, %s%s\n", l.Priority, limit, at)
}

func writeRule(b *strings.Builder, s term.Style, r *Rule) {
	name := r.Name
	if r.List {
		name += " list"
	}
	at := ""
	if r.File != "" {
		at = s.Faint(fmt.Sprintf("  %s:%d", term.Printable(r.File), r.Line))
	}
	fmt.Fprintf(b, "\n%s %s%s\n", s.Mark(r.Matches), s.Bold(term.Printable(name)), at)
	for _, c := range r.Conditions {
		value := ""
		if c.Value != "" {
			value = s.Faint(" — " + term.Printable(c.Value))
		}
		fmt.Fprintf(b, "  %s %s%s\n", s.Mark(c.Matched), term.Printable(c.Text), value)
	}
	if len(r.Conditions) == 0 && r.Matches {
		fmt.Fprintf(b, "  %s all requests\n", s.Mark(true))
	}
	for _, k := range r.Key {
		fmt.Fprintf(b, "  key %s = %s\n", term.Printable(k.Name), term.Printable(k.Value))
	}
	if r.Matches && !r.List && len(r.Key) == 0 {
		fmt.Fprintf(b, "  no key: counts all clients together\n")
	}
	writeLimits(b, r.Limits)
	for _, note := range r.Notes {
		fmt.Fprintf(b, "  %s\n", term.Printable(note))
	}
}

func writeLimits(b *strings.Builder, limits []Limit) {
	for _, l := range limits {
		cost := ""
		if l.Cost != 1 {
			cost = fmt.Sprintf(", the request costs %d", l.Cost)
		}
		state := "unused"
		if l.ResetAfterSeconds > 0 {
			reset := time.Duration(l.ResetAfterSeconds * float64(time.Second)).Round(time.Millisecond)
			state = "fully reset in " + term.Duration(reset)
		}
		state = fmt.Sprintf("%d of %d left, %s", l.Remaining, l.Max, state)
		unavailable := " (store unavailable: on_failure is " + l.Source + ")"
		switch l.Source {
		case sluice.SourceSuspended.String():
			state = suspendedText
		case sluice.SourceFailOpen.String(), sluice.SourceFailClosed.String():
			state = "not counted" + unavailable
		case sluice.SourceFailLocal.String():
			state += unavailable
		}
		fmt.Fprintf(b, "  limit %s: %s%s\n", l.Limit, state, cost)
	}
}

// suspendedText is the state of a suspended rule, whose remaining quota is unknown.
const suspendedText = "suspended, all requests are allowed"
