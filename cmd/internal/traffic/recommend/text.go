package recommend

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// WriteText writes the report as text.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, l := range r.Logs {
		fmt.Fprintf(&b, "%s: format %s", term.Printable(l.Name), l.Format)
		if l.Mapping != "" {
			fmt.Fprintf(&b, " (%s)", term.Printable(l.Mapping))
		}
		b.WriteByte('\n')
		if l.Invalid > 0 {
			fmt.Fprintf(&b, "  %d of %s skipped as invalid:\n", l.Invalid, term.Count(l.Lines, "line"))
		}
		for _, e := range l.Errors {
			fmt.Fprintf(&b, "  %s\n", term.Printable(e))
		}
	}
	fmt.Fprintf(&b, "%s requests of %s by %s, %s from %s\n", term.Thousands(int64(r.Requests)), term.Count(r.Keys, "key"), r.keyName(),
		term.Duration(r.End.Sub(r.Start)), r.Start.Format("2006-01-02 15:04:05 UTC"))
	fmt.Fprintf(&b, "trained on %s of %s (the 1st, 3rd, …), validated on the %d between them\n",
		term.Count(r.Training.Blocks, "block"), term.Duration(r.Block), r.Validation.Blocks)
	fmt.Fprintf(&b, "\nrecommended: %s\n%s\n", limitText(r.Limit), r.Reason)
	fmt.Fprintf(&b, "confidence: %s\n", r.Confidence.Level)
	for _, c := range r.Confidence.Checks {
		fmt.Fprintf(&b, "  %s %s: %s\n", term.Style{}.Mark(c.OK), c.Name, c.Text)
	}
	for _, write := range []func(*strings.Builder) error{r.writeFrontier, r.writeParts, r.writeAlgorithms, r.writeOutliers} {
		if err := write(&b); err != nil {
			return err
		}
	}
	r.writeCapacity(&b)
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "\nnote: %s\n", n)
	}
	if len(r.Written) > 0 {
		fmt.Fprintf(&b, "\nwritten, in shadow mode: %s\n", term.Printable(strings.Join(r.Written, ", ")))
	} else {
		fmt.Fprintf(&b, "\n--- %s.yaml\n%s\n--- %s_test.yaml\n%s", r.Name, r.Rule, r.Name, r.RuleTest)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) keyName() string {
	if r.Key == "" {
		return "one key for all requests"
	}
	return term.Printable(r.Key)
}

// textPoints is the maximum number of points of the frontier in the text, unless their rates were given.
const textPoints = 9

func (r *Report) writeFrontier(b *strings.Builder) error {
	if r.Knee == nil {
		return nil
	}
	knee := slices.IndexFunc(r.Frontier, func(p Point) bool { return p.Rate == r.Knee.Rate })
	rows := [][]string{{"", "rate", "burst", "p50", "p90", "p99", "max", "outliers", "whole log"}}
	for i := range r.Frontier {
		p := &r.Frontier[i]
		if off := i - knee; len(r.Rates) == 0 && off != 0 && (off%2 != 0 || off > textPoints || off < -textPoints) {
			continue
		}
		mark := ""
		if i == knee {
			mark = ">"
		}
		rows = append(rows, []string{
			mark, p.Rate.String(), fmt.Sprint(p.Burst), fmt.Sprint(p.Quantiles[0]), fmt.Sprint(p.Quantiles[1]), fmt.Sprint(p.Quantiles[2]),
			fmt.Sprint(p.Quantiles[len(p.Quantiles)-1]), fmt.Sprint(p.Outliers), fmt.Sprintf("%d (%.2f)", p.WholeBurst, p.WholeBacklog),
		})
	}
	fmt.Fprintf(b, "\nsmallest burst that denies nothing to %s of the clients, by rate; > is the knee:\n", Percent(r.Untouched))
	if err := term.Table(b, rows); err != nil {
		return err
	}
	fmt.Fprintln(b, "Quantiles are over clients. The burst of the whole log denies nothing to any key; its backlog is in parentheses.")
	return nil
}

func (r *Report) writeParts(b *strings.Builder) error {
	rows := [][]string{{"", "clients", "denied", "requests", "denied"}}
	for _, p := range []struct {
		name string
		part *Part
	}{{"training", &r.Training}, {"validation", &r.Validation}, {"whole log", &r.Whole}} {
		for _, c := range []struct {
			name  string
			class *Class
		}{{"", &p.part.Clients}, {", crawlers", &p.part.Crawlers}, {", outliers", &p.part.Outliers}} {
			if c.name == "" || c.class.Keys > 0 {
				rows = append(rows, []string{
					p.name + c.name, fmt.Sprint(c.class.Keys), fmt.Sprint(c.class.KeysDenied), fmt.Sprint(c.class.Requests), fmt.Sprint(c.class.Denied),
				})
			}
		}
	}
	fmt.Fprintln(b, "\nreplayed through the limiter:")
	return term.Table(b, rows)
}

func (r *Report) writeAlgorithms(b *strings.Builder) error {
	if len(r.Algorithms) == 0 {
		return nil
	}
	rows := [][]string{{"algorithm", "limit", "clients denied", "requests denied", "most in the window", "bytes per key"}}
	for _, c := range r.Algorithms {
		rows = append(rows, []string{
			c.Algorithm, limitText(c.limit), fmt.Sprintf("%d of %d", c.Clients.KeysDenied, c.Clients.Keys),
			fmt.Sprint(c.Clients.Denied), fmt.Sprint(c.Most), fmt.Sprint(c.Bytes),
		})
	}
	fmt.Fprintln(b, "\nalgorithms at the same rate and size, on the clients of the training blocks:")
	return term.Table(b, rows)
}

// textOutliers is the maximum number of outliers in the text.
const textOutliers = 5

func (r *Report) writeOutliers(b *strings.Builder) error {
	if len(r.Outliers) == 0 {
		return nil
	}
	rows := [][]string{{"outlier", "needs", "requests", "denied"}}
	for _, o := range r.Outliers[:min(len(r.Outliers), textOutliers)] {
		rows = append(rows, []string{term.Printable(o.Key), fmt.Sprint(o.Need), fmt.Sprint(o.Requests), fmt.Sprint(o.Denied)})
	}
	fmt.Fprintf(b, "\nleft out, because even at 4 times the rate they need more than %d (16 × (a typical client + 1)):\n", r.Fence)
	return term.Table(b, rows)
}

func (r *Report) writeCapacity(b *strings.Builder) {
	if c := r.Capacity; c != nil {
		fmt.Fprintf(b, "\ncapacity %.4g/s: one key gets at most %.4g in a second; all keys together got %d in the busiest one\n",
			c.PerSecond, c.OneKey, c.Busiest)
	}
}
