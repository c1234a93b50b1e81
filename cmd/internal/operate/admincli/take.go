package admincli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// TakeResult is what take prints. Its fields are for programs to rely on.
type TakeResult struct {
	Allowed int            `json:"allowed"`
	Denied  int            `json:"denied"`
	Seconds float64        `json:"seconds"`
	Answers []takeResponse `json:"answers"`
}

type takeResponse struct {
	Status int               `json:"status"`
	Header map[string]string `json:"headers"`
	Raw    json.RawMessage   `json:"answer"`
	answer adminclient.CheckAnswer
}

func (t *TakeResult) Add(c *adminclient.Checked) {
	if c.Answer.Allowed {
		t.Allowed++
	} else {
		t.Denied++
	}
	a := takeResponse{Status: c.Status, Header: map[string]string{}, Raw: c.Raw, answer: c.Answer}
	for name, values := range c.Header {
		if limitHeader(name) {
			a.Header[name] = strings.Join(values, ", ")
		}
	}
	t.Answers = append(t.Answers, a)
}

// limitHeader tells whether a header speaks of limits.
func limitHeader(name string) bool {
	lower := strings.ToLower(name)
	return lower == "retry-after" || strings.Contains(lower, "ratelimit")
}

func (t *TakeResult) Write(w io.Writer) error {
	s := term.NewStyle(w)
	if len(t.Answers) == 1 {
		return t.Answers[0].write(w, s)
	}
	var b strings.Builder
	digits := len(fmt.Sprint(len(t.Answers)))
	for first := 0; first < len(t.Answers); {
		last := first
		for last+1 < len(t.Answers) && t.Answers[last+1].answer.Allowed == t.Answers[first].answer.Allowed {
			last++
		}
		which := fmt.Sprintf("%*d", 2*digits+1, last+1)
		if first < last {
			which = fmt.Sprintf("%*d-%-*d", digits, first+1, digits, last+1)
		}
		a := &t.Answers[last].answer
		fmt.Fprintf(&b, "%s  %s  %s\n", which, verdict(s, a.Allowed), why(a))
		first = last + 1
	}
	fmt.Fprintf(&b, "%d allowed, %d denied, %.3fs\n", t.Allowed, t.Denied, t.Seconds)
	_, err := io.WriteString(w, b.String())
	return err
}

func verdict(s term.Style, allowed bool) string {
	if allowed {
		return s.Green("allowed")
	}
	return s.Red("denied ")
}

// why is the limit that matters most, in the words of explain.
func why(a *adminclient.CheckAnswer) string {
	if len(a.Limits) == 0 {
		return term.Printable(cmp.Or(a.Why, "no limit applies"))
	}
	tight := slices.MinFunc(a.Limits, func(x, y adminclient.CheckedLimit) int {
		return cmp.Or(rank(&x)-rank(&y), -cmp.Compare(x.RetryAfterMS, y.RetryAfterMS), cmp.Compare(left(&x), left(&y)))
	})
	return checkedText(&tight)
}

// rank puts what denies first and what only reports last.
func rank(l *adminclient.CheckedLimit) int {
	switch {
	case l.Shadow:
		return 2
	case l.Allowed:
		return 1
	}
	return 0
}

// left is what is left, and much if nobody knows.
func left(l *adminclient.CheckedLimit) int64 {
	if l.Remaining == nil {
		return math.MaxInt64
	}
	return *l.Remaining
}

func checkedText(l *adminclient.CheckedLimit) string {
	if l.Source == suspended {
		return term.Printable(l.Rule) + ": " + suspendedText
	}
	text := fmt.Sprintf("%s: limit %d", term.Printable(l.Rule), l.Limit)
	if l.Remaining != nil {
		text = fmt.Sprintf("%s: %d of %d left", term.Printable(l.Rule), *l.Remaining, l.Limit)
	}
	if l.Never {
		text += ", a request of this cost never fits"
	}
	if l.DelayMS > 0 {
		text += ", after waiting for " + term.Duration(term.Seconds(l.DelayMS/1000))
	}
	if !l.Allowed && l.RetryAfterMS > 0 {
		text += ", retry after " + term.Duration(term.Seconds(l.RetryAfterMS/1000))
	}
	if l.ResetAfterMS > 0 {
		text += ", all of it again after " + term.Duration(term.Seconds(l.ResetAfterMS/1000))
	}
	if l.Shadow {
		text += "; it would deny if it were not in shadow"
	}
	return text + sourceText(l.Source)
}

// write shows one answer whole.
func (a *takeResponse) write(w io.Writer, s term.Style) error {
	var b strings.Builder
	line := fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status))
	if a.answer.Allowed {
		line = s.Green(line)
	} else {
		line = s.Red(line)
	}
	fmt.Fprintln(&b, line)
	names := make([]string, 0, len(a.Header))
	for name := range a.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "%s %s\n", s.Faint(term.Printable(name)+":"), term.Printable(a.Header[name]))
	}
	b.WriteByte('\n')
	for i := range a.answer.Limits {
		l := &a.answer.Limits[i]
		fmt.Fprintf(&b, "%s %s\n", s.Mark(l.Allowed), checkedText(l))
	}
	if len(a.answer.Limits) == 0 || a.answer.Why != "" {
		fmt.Fprintln(&b, why(&adminclient.CheckAnswer{Why: a.answer.Why}))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
