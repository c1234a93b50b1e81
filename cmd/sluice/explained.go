package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/explain"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// writeExplained writes an explanation for people.
func writeExplained(w io.Writer, x *explain.Answer) error {
	s := newStyle(w)
	var b strings.Builder
	verdict := s.green(x.Verdict)
	if x.Verdict == "denied" || x.Verdict == "refused" {
		verdict = s.red(x.Verdict)
	}
	fmt.Fprintf(&b, "%s\n%s: %s\n", s.bold(printable(x.Request)), verdict, printable(x.Why))
	writeLoad(&b, s, x.Load)
	for i := range x.Rules {
		writeRule(&b, s, &x.Rules[i])
	}
	for i := range x.Descriptors {
		d := &x.Descriptors[i]
		fmt.Fprintf(&b, "\n%s\n", s.bold(printable(d.Entries)))
		for _, step := range d.Steps {
			fmt.Fprintf(&b, "  %s\n", printable(step))
		}
		writeLimits(&b, d.Limits)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeLoad says what becomes of the request when not all can be served.
func writeLoad(b *strings.Builder, s style, l *explain.Load) {
	if l == nil {
		return
	}
	at := ""
	if l.File != "" {
		at = s.faint(fmt.Sprintf("  %s:%d", printable(l.File), l.Line))
	}
	gate := "is never turned away for overload"
	if l.Gate != "" {
		gate = fmt.Sprintf("gate %s, %d to %d in flight", printable(l.Gate), l.Min, l.Max)
	}
	if l.Shadow {
		gate += ", which only reports"
	}
	fmt.Fprintf(b, "priority %s, %s%s\n", l.Priority, gate, at)
}

func writeRule(b *strings.Builder, s style, r *explain.Rule) {
	name := r.Name
	if r.List {
		name += " list"
	}
	at := ""
	if r.File != "" {
		at = s.faint(fmt.Sprintf("  %s:%d", printable(r.File), r.Line))
	}
	fmt.Fprintf(b, "\n%s %s%s\n", s.mark(r.Matches), s.bold(printable(name)), at)
	for _, c := range r.Conditions {
		value := ""
		if c.Value != "" {
			value = s.faint(" — " + printable(c.Value))
		}
		fmt.Fprintf(b, "  %s %s%s\n", s.mark(c.Holds), printable(c.Text), value)
	}
	if len(r.Conditions) == 0 && r.Matches {
		fmt.Fprintf(b, "  %s all requests\n", s.mark(true))
	}
	for _, k := range r.Key {
		fmt.Fprintf(b, "  counts by %s = %s\n", printable(k.Name), printable(k.Value))
	}
	if r.Matches && !r.List && len(r.Key) == 0 {
		fmt.Fprintf(b, "  counts everybody together\n")
	}
	writeLimits(b, r.Limits)
	for _, note := range r.Notes {
		fmt.Fprintf(b, "  %s\n", printable(note))
	}
}

func writeLimits(b *strings.Builder, limits []explain.Limit) {
	for _, l := range limits {
		cost := ""
		if l.Cost != 1 {
			cost = fmt.Sprintf(", the request costs %d", l.Cost)
		}
		state := "nothing is spent"
		if l.ResetSeconds > 0 {
			reset := time.Duration(l.ResetSeconds * float64(time.Second)).Round(time.Millisecond)
			state = "all of it again after " + term.Duration(reset)
		}
		fmt.Fprintf(b, "  limit %s: %d of %d left, %s%s\n", l.Limit, l.Remaining, l.Of, state, cost)
	}
}
