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

// TakeResult is the output of sluice take. Its JSON fields are a stable interface for programs.
type TakeResult struct {
	Allowed int            `json:"allowed"`
	Denied  int            `json:"denied"`
	Seconds float64        `json:"elapsed_seconds"`
	Results []takeResponse `json:"results"`
}

type takeResponse struct {
	Status int               `json:"status"`
	Header map[string]string `json:"headers"`
	Raw    json.RawMessage   `json:"body"`
	result adminclient.CheckResult
}

// Add appends a response.
func (t *TakeResult) Add(c *adminclient.Checked) {
	if c.Result.Allowed {
		t.Allowed++
	} else {
		t.Denied++
	}
	a := takeResponse{Status: c.Status, Header: map[string]string{}, Raw: c.Raw, result: c.Result}
	for name, values := range c.Header {
		if limitHeader(name) {
			a.Header[name] = strings.Join(values, ", ")
		}
	}
	t.Results = append(t.Results, a)
}

// limitHeader reports whether a header is about limits.
func limitHeader(name string) bool {
	lower := strings.ToLower(name)
	return lower == "retry-after" || strings.Contains(lower, "ratelimit")
}

// Write writes the results as text: one result in full, several as a line for each run of equal outcomes.
func (t *TakeResult) Write(w io.Writer) error {
	s := term.NewStyle(w)
	if len(t.Results) == 1 {
		return t.Results[0].write(w, s)
	}
	var b strings.Builder
	digits := len(fmt.Sprint(len(t.Results)))
	for first := 0; first < len(t.Results); {
		last := first
		for last+1 < len(t.Results) && t.Results[last+1].result.Allowed == t.Results[first].result.Allowed {
			last++
		}
		which := fmt.Sprintf("%*d", 2*digits+1, last+1)
		if first < last {
			which = fmt.Sprintf("%*d-%-*d", digits, first+1, digits, last+1)
		}
		a := &t.Results[last].result
		fmt.Fprintf(&b, "%s  %s  %s\n", which, outcome(s, a.Allowed), reason(a))
		first = last + 1
	}
	fmt.Fprintf(&b, "%d allowed, %d denied, %.3fs\n", t.Allowed, t.Denied, t.Seconds)
	_, err := io.WriteString(w, b.String())
	return err
}

func outcome(s term.Style, allowed bool) string {
	if allowed {
		return s.Green("allowed")
	}
	return s.Red("denied ")
}

// reason describes the most restrictive limit as explain does.
func reason(a *adminclient.CheckResult) string {
	if len(a.Limits) == 0 {
		return term.Printable(cmp.Or(a.Reason, "no limit applies"))
	}
	tight := slices.MinFunc(a.Limits, func(x, y adminclient.CheckedLimit) int {
		return cmp.Or(rank(&x)-rank(&y), -cmp.Compare(x.RetryAfterMS, y.RetryAfterMS), cmp.Compare(left(&x), left(&y)))
	})
	return checkedText(&tight)
}

// rank orders limits: those that deny first, shadow-denied ones last.
func rank(l *adminclient.CheckedLimit) int {
	switch {
	case l.ShadowDenied:
		return 2
	case l.Allowed:
		return 1
	}
	return 0
}

// left returns the remaining quota, or math.MaxInt64 if it is unknown.
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
	if l.ExceedsLimit {
		text += ", the cost exceeds the limit"
	}
	if l.DelayMS > 0 {
		text += ", delayed by " + term.Duration(term.Seconds(l.DelayMS/1000))
	}
	if !l.Allowed && l.RetryAfterMS > 0 {
		text += ", retry after " + term.Duration(term.Seconds(l.RetryAfterMS/1000))
	}
	if l.ResetAfterMS > 0 {
		text += ", fully reset in " + term.Duration(term.Seconds(l.ResetAfterMS/1000))
	}
	if l.ShadowDenied {
		text += "; shadow mode: would be denied"
	}
	return text + sourceText(l.Source)
}

// write writes a response with its status, headers and limits.
func (a *takeResponse) write(w io.Writer, s term.Style) error {
	var b strings.Builder
	line := fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status))
	if a.result.Allowed {
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
	for i := range a.result.Limits {
		l := &a.result.Limits[i]
		fmt.Fprintf(&b, "%s %s\n", s.Mark(l.Allowed), checkedText(l))
	}
	if len(a.result.Limits) == 0 || a.result.Reason != "" {
		fmt.Fprintln(&b, reason(&adminclient.CheckResult{Reason: a.result.Reason}))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
