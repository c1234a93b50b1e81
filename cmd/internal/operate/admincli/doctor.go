package admincli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// quiet are the kinds of verdicts that WriteDoctor only counts, with their text.
var quiet = []struct{ kind, text string }{
	{"fits", "fit"}, {"never_near", "never near their limit"}, {"no_verdict", "without a verdict yet"},
}

// WriteDoctor writes the verdicts on the rules, those that need a change first, and then the status. It returns
// term.ErrFindings if a rule needs a change or the instance is degraded.
func WriteDoctor(rules *adminmsg.Rules, status *adminmsg.Status, w io.Writer, s term.Style) error {
	var judged []*adminmsg.Rule
	counts, changes := map[string]int{}, 0
	for i := range rules.Rules {
		r := &rules.Rules[i]
		if r.Verdict == nil {
			continue
		}
		counts[r.Verdict.Kind]++
		if r.Verdict.NeedsChange {
			changes++
		}
		if !isQuiet(r.Verdict.Kind) {
			judged = append(judged, r)
		}
	}
	slices.SortStableFunc(judged, func(a, b *adminmsg.Rule) int {
		return cmp.Or(order(a)-order(b), cmp.Compare(b.Denied, a.Denied))
	})
	var b strings.Builder
	head := s.Green("no rule needs a change")
	if changes > 0 {
		head = s.Red(fmt.Sprintf("%d of %s to change", changes, term.Count(len(rules.Rules), "rule")))
	}
	fmt.Fprintf(&b, "%s\n\n", head)
	for _, r := range judged {
		writeVerdict(&b, r, s)
	}
	var rest []string
	for _, q := range quiet {
		if n := counts[q.kind]; n > 0 {
			rest = append(rest, fmt.Sprintf("%d %s", n, q.text))
		}
	}
	if len(rest) > 0 {
		fmt.Fprintf(&b, "other rules: %s\n\n", strings.Join(rest, ", "))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	err := WriteStatus(status, w, s)
	if err != nil && !errors.Is(err, term.ErrFindings) || changes == 0 {
		return err
	}
	return term.ErrFindings
}

func isQuiet(kind string) bool {
	for _, q := range quiet {
		if q.kind == kind {
			return true
		}
	}
	return false
}

func order(r *adminmsg.Rule) int {
	if r.Verdict.NeedsChange {
		return 0
	}
	return 1
}

func writeVerdict(b *strings.Builder, r *adminmsg.Rule, s term.Style) {
	v := r.Verdict
	kind := strings.ReplaceAll(v.Kind, "_", " ")
	if v.NeedsChange {
		kind = s.Red(term.Printable(kind))
	} else {
		kind = s.Yellow(term.Printable(kind))
	}
	fmt.Fprintf(b, "%s: %s since %s, confidence %s\n", s.Bold(term.Printable(v.Limit)), kind, term.Clock(v.Since), term.Printable(v.Confidence))
	fmt.Fprintf(b, "  limit     %s per %s\n", term.Printable(r.LimitText()), term.Printable(strings.Join(r.Per, ", ")))
	fmt.Fprintf(b, "  verdict   %s\n", term.Printable(v.Text))
	for i, fact := range v.Evidence {
		fmt.Fprintf(b, "  %-9s %s\n", []string{"evidence", ""}[min(i, 1)], term.Printable(fact))
	}
	if v.Advice != nil {
		fmt.Fprintf(b, "  advice    %s\n", term.Printable(v.Advice.Text))
	}
	b.WriteByte('\n')
}
