package simulate

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rules"
)

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for i := range r.Logs {
		writeLog(&b, &r.Logs[i])
	}
	fmt.Fprintf(&b, "%s from %s, %s long\n", term.Count(int(r.Requests), "request"), r.Start.UTC().Format("2006-01-02 15:04:05 UTC"), term.Duration(r.End.Sub(r.Start)))
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
		fmt.Fprintf(&b, "Each mark over time is %s.\n", term.Duration(each))
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
	if l.Bad == 0 {
		return
	}
	fmt.Fprintf(b, "%s: %d of %s could not be read:\n", term.Printable(l.Name), l.Bad, term.Count(l.Lines, "line"))
	for _, f := range l.Faults {
		fmt.Fprintf(b, "  line %d: %s: %s\n", f.Line, term.Printable(f.Err.Error()), term.Printable(f.Text))
	}
	if more := l.Bad - len(l.Faults); more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
}

// writeOutcomes writes what would have become of the requests, and what has.
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
		{"refused", r.Refused},
		{"without a limit", r.Unlimited},
	} {
		if o.n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d (%s)", o.word, o.n, share(o.n, r.Requests)))
		}
	}
	fmt.Fprintln(b, strings.Join(parts, ", "))
	if denied := r.Recorded["denied"] + r.Recorded["shed"] + r.Recorded["refused"]; denied > 0 {
		fmt.Fprintf(b, "when the log was written %d (%s) were turned away\n", denied, share(denied, r.Requests))
	}
}

func simulatedRow(r *Rule) []string {
	name, n := term.Printable(r.Name), func(n int64, wait bool) string {
		switch {
		case n == 0:
			return "-"
		case wait:
			return fmt.Sprintf("%d (%s, at most %s)", n, waited(r.MeanWait), waited(r.MaxWait))
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

// waited is a wait as people read it.
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

// spark draws how many were denied over time. The smallest block is at least one.
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

// maxPart is how long a mark is, or 0 if none is drawn.
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
	fmt.Fprintf(b, "\nmost often over the limit of %s:\n", term.Printable(r.Name))
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
		return "everybody together"
	}
	var all []string
	for _, p := range parts {
		all = append(all, p.Name+"="+p.Value)
	}
	return strings.Join(all, ", ")
}

// simulatedNotes is what the numbers do not tell.
func simulatedNotes(r *Report) []string {
	var all []string
	for i := range r.Rules {
		if rule := &r.Rules[i]; len(rule.Unseen) > 0 {
			all = append(all, fmt.Sprintf("%s asks for %s, which cannot be seen in this log: requests are taken for ones without.", rule.Name, strings.Join(rule.Unseen, ", ")))
		}
	}
	return append(all, r.Notes...)
}
