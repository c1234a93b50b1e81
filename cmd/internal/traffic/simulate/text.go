package simulate

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rules"
)

// WriteText writes the report as text.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for i := range r.Logs {
		writeLog(&b, &r.Logs[i])
	}
	fmt.Fprintf(&b, "%s from %s, duration %s\n", term.Count(int(r.Requests), "request"), r.Start.UTC().Format("2006-01-02 15:04:05 UTC"), term.Duration(r.End.Sub(r.Start)))
	writeOutcomes(&b, r)
	b.WriteByte('\n')
	rows := [][]string{{"rule", "requests", "denied", "share", "delayed", "queued", "peak/s", "denied over time"}}
	for i := range r.Rules {
		rows = append(rows, simulatedRow(&r.Rules[i]))
	}
	if err := term.Table(&b, rows); err != nil {
		return err
	}
	if each := maxPart(r); each > 0 {
		fmt.Fprintf(&b, "Each mark of the timeline covers %s.\n", term.Duration(each))
	}
	for i := range r.Rules {
		writeKeys(&b, &r.Rules[i])
	}
	for _, note := range simulatedNotes(r) {
		fmt.Fprintf(&b, "\nnote: %s\n", term.Printable(note))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeLog(b *strings.Builder, l *Log) {
	if l.Format != "" {
		fmt.Fprintf(b, "%s: format %s", term.Printable(l.Name), l.Format)
		if l.Mapping != "" {
			fmt.Fprintf(b, " (%s)", term.Printable(l.Mapping))
		}
		b.WriteByte('\n')
	}
	if l.Bad == 0 {
		return
	}
	fmt.Fprintf(b, "%s: %d of %s skipped as invalid:\n", term.Printable(l.Name), l.Bad, term.Count(l.Lines, "line"))
	for _, f := range l.Faults {
		fmt.Fprintf(b, "  line %d: %s: %s\n", f.Line, term.Printable(f.Err.Error()), term.Printable(f.Text))
	}
	if more := l.Bad - len(l.Faults); more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
}

// writeOutcomes writes the simulated outcomes, and the number of denied requests in the log.
func writeOutcomes(b *strings.Builder, r *Report) {
	var parts []string
	for _, o := range []struct {
		word string
		n    int64
	}{
		{"allowed", r.Allowed},
		{"denied", r.Denied},
		{"delayed", r.Delayed},
		{"queued", r.Queued},
		{"rejected", r.Rejected},
		{"unlimited", r.Unlimited},
	} {
		if o.n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d (%s)", o.word, o.n, share(o.n, r.Requests)))
		}
	}
	fmt.Fprintln(b, strings.Join(parts, ", "))
	if denied := r.Recorded["denied"] + r.Recorded["shed"] + r.Recorded["rejected"]; denied > 0 {
		fmt.Fprintf(b, "recorded in the log as denied, shed or rejected: %d (%s)\n", denied, share(denied, r.Requests))
	}
}

func simulatedRow(r *Rule) []string {
	name, n := term.Printable(r.Name), func(n int64, wait bool) string {
		switch {
		case n == 0:
			return "-"
		case wait:
			return fmt.Sprintf("%d (mean %s, max %s)", n, waited(r.MeanWait), waited(r.MaxWait))
		}
		return fmt.Sprint(n)
	}
	if r.Shadow {
		name += " (shadow)"
	}
	return []string{
		name, fmt.Sprint(r.Requests), n(r.Denied, false), share(r.Denied, r.Requests), n(r.Delayed, r.OnLimit != rules.OnLimitQueue),
		n(r.Queued, r.OnLimit == rules.OnLimitQueue), fmt.Sprint(r.Peak), spark(&r.Timeline),
	}
}

// waited formats a delay.
func waited(d time.Duration) string {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

func share(n, of int64) string {
	if n == 0 || of == 0 {
		return "-"
	}
	if percent := 100 * float64(n) / float64(of); percent >= 0.1 {
		return fmt.Sprintf("%.1f %%", percent)
	}
	return "< 0.1 %"
}

// spark draws the denied requests over time. A part with any denied request has at least the smallest block.
func spark(t *Timeline) string {
	blocks := []rune("▁▂▃▄▅▆▇█")
	var most int64
	for _, p := range t.Parts {
		most = max(most, p.Denied)
	}
	if most == 0 {
		return ""
	}
	var b strings.Builder
	for _, p := range t.Parts {
		if p.Denied == 0 {
			b.WriteByte('.')
			continue
		}
		b.WriteRune(blocks[(p.Denied*int64(len(blocks))-1)/most])
	}
	return b.String()
}

// maxPart returns the duration of a mark, or 0 if none is drawn.
func maxPart(r *Report) (each time.Duration) {
	for i := range r.Rules {
		if r.Rules[i].Denied > 0 {
			each = max(each, r.Timeline.Each)
		}
	}
	return each
}

func writeKeys(b *strings.Builder, r *Rule) {
	if len(r.Keys) == 0 {
		return
	}
	fmt.Fprintf(b, "\nkeys most often denied, delayed or queued by %s:\n", term.Printable(r.Name))
	for _, k := range r.Keys {
		about := ""
		if r.Missed > 0 {
			about = fmt.Sprintf(" to %d", k.Count+r.Missed)
		}
		fmt.Fprintf(b, "  %d%s  %s\n", k.Count, about, term.Printable(keyParts(k.Parts)))
	}
}

func keyParts(parts []rules.KeyPart) string {
	if len(parts) == 0 {
		return "all requests"
	}
	var all []string
	for _, p := range parts {
		all = append(all, p.Name+"="+p.Value)
	}
	return strings.Join(all, ", ")
}

// simulatedNotes returns all notes of a report.
func simulatedNotes(r *Report) []string {
	var all []string
	for i := range r.Rules {
		if rule := &r.Rules[i]; len(rule.Unseen) > 0 {
			all = append(all, fmt.Sprintf("Rule %s uses %s, which the log does not contain: it is treated as missing.", rule.Name, strings.Join(rule.Unseen, ", ")))
		}
	}
	return append(all, r.Notes...)
}
