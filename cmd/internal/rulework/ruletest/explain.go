package ruletest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/rules"
)

// secretHeaders returns the headers whose values are not shown: credentials, and secret attributes of the rules.
func secretHeaders(set *rules.Set) map[string]bool {
	secret := map[string]bool{}
	for _, name := range match.CredentialHeaders() {
		secret[name] = true
	}
	for _, a := range set.Config().Attributes {
		for _, ref := range a.Sources {
			if name, ok := strings.CutPrefix(ref.Name, "header:"); ok && a.Secret {
				secret[http.CanonicalHeaderKey(name)] = true
			}
		}
	}
	return secret
}

// describe returns the request and its time as text.
func (q *Request) describe(secret map[string]bool) string {
	var b strings.Builder
	for i, s := range q.Settle {
		b.WriteString([...]string{"settle ", ", "}[min(i, 1)])
		fmt.Fprintf(&b, "%s at %d", s.Name, s.Cost)
	}
	if q.HTTP != nil {
		b.WriteString(q.HTTP.String())
		for _, f := range q.HTTP.Header {
			value := clip(f.Value)
			if secret[http.CanonicalHeaderKey(f.Name)] {
				value = "(secret)"
			}
			fmt.Fprintf(&b, ", %s: %s", f.Name, value)
		}
		if q.HTTP.Addr.IsValid() {
			fmt.Fprintf(&b, ", from %v", q.HTTP.Addr)
		}
	} else if q.Descriptors != nil {
		b.WriteString(q.Descriptors.String())
	}
	if q.Reserve > 0 {
		fmt.Fprintf(&b, ", reserving %d as %s", q.Reserve, q.As)
	}
	if q.Times > 1 {
		fmt.Fprintf(&b, ", %d times", q.Times)
	}
	fmt.Fprintf(&b, ", at %s", term.Duration(q.Offset))
	return b.String()
}

// plainError returns an error without the name of the package, which means nothing to authors of rules.
func plainError(err error) string { return strings.TrimPrefix(err.Error(), "rules: ") }

func clip(s string) string {
	const most = 40
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// explain describes in a few lines how the rules match a request.
func (r *runner) explain(q *Request) []string {
	if q.Settle != nil {
		return nil
	}
	if q.Descriptors != nil {
		return r.explainDescriptors(q.Descriptors)
	}
	sent, err := q.HTTP.Request()
	if err != nil {
		return []string{err.Error()}
	}
	e := r.set.Explain(httplimit.NewRulesRequest(sent, r.set))
	return Summarize(e)
}

// maxOthers is the maximum number of listed rules that do not match.
const maxOthers = 5

// Summarize returns an explanation with one line for each rule: those that match, and a few of those that do not.
func Summarize(e *rules.Explanation) []string {
	var lines, others []string
	if e.Err != nil {
		lines = append(lines, "rejected: "+plainError(e.Err))
	}
	for i := range e.Rules {
		x := &e.Rules[i]
		if x.Matches {
			lines = append(lines, "✓ "+matching(x))
		} else if x.Rule != nil {
			others = append(others, "✗ "+differing(x))
		}
	}
	if more := len(others) - maxOthers; more > 0 {
		others = append(others[:maxOthers], fmt.Sprintf("and %d more that do not match", more))
	}
	return slices.Concat(lines, others)
}

// matching describes a rule that matches: its key, limits and notes.
func matching(x *rules.RuleExplanation) string {
	var parts []string
	for _, k := range x.Key {
		parts = append(parts, k.Name+"="+clip(k.Value))
	}
	s := x.Name
	if x.Rule == nil {
		return s + " list: " + conditions(x.Conditions)
	}
	if len(parts) > 0 {
		s += " for " + strings.Join(parts, ", ")
	}
	var limits []string
	for i := range x.Takes {
		text := x.Takes[i].EffectiveLimit().String()
		if c := x.Takes[i].Cost; c != 1 {
			text += fmt.Sprintf(" (costs %d)", c)
		}
		limits = append(limits, text)
	}
	if len(limits) > 0 {
		s += ": " + strings.Join(limits, " and ")
	}
	if len(x.Notes) > 0 {
		s += "; " + strings.Join(x.Notes, "; ")
	}
	return s
}

func conditions(all []rules.Condition) string {
	var texts []string
	for _, c := range all {
		texts = append(texts, c.Text)
	}
	return strings.Join(texts, " and ")
}

// differing describes why a rule does not match.
func differing(x *rules.RuleExplanation) string {
	for _, c := range x.Conditions {
		if !c.Matched && c.Value != "" {
			return fmt.Sprintf("%s: %s, the request has %s", x.Name, c.Text, clip(c.Value))
		} else if !c.Matched {
			return fmt.Sprintf("%s: %s", x.Name, c.Text)
		}
	}
	if len(x.Notes) > 0 {
		return x.Name + ": " + strings.Join(x.Notes, "; ")
	}
	return x.Name
}

func (r *runner) explainDescriptors(d *sample.Descriptors) []string {
	var lines []string
	for _, x := range r.set.ExplainDescriptors(d.Domain, d.Each) {
		lines = append(lines, x.Outcome)
	}
	return lines
}
