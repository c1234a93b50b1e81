package describe

import (
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rules"
)

// Match describes the requests that a rule matches in a few words: "POST /posts", and the names of further conditions.
// It leaves out their values: they may be secrets, and the line must fit on a screen.
func Match(r *rules.Rule) string {
	text := requestText(&r.Match)
	if others := otherRefs(r); len(others) > 0 {
		text += " by " + strings.Join(others, ", ")
	}
	return text
}

// requestText returns the public part of a condition: method, host and path.
func requestText(m *rules.Match) string {
	var method, host, path string
	for i := range m.Predicates {
		p := &m.Predicates[i]
		switch p.Ref.Name {
		case "method":
			method = values(p, p.Values)
		case "host":
			host = values(p, p.Values)
		case "path":
			path = values(p, append(append([]string(nil), p.Patterns...), p.Values...))
		}
	}
	switch where := host + path; {
	case method == "" && where == "":
		return "all requests"
	case where == "":
		return "all " + method + " requests"
	default:
		return strings.TrimSpace(method + " " + where)
	}
}

// values joins the values of a condition: GET|HEAD, !GET, /static/*.
func values(p *rules.Predicate, exact []string) string {
	all := append([]string(nil), exact...)
	for _, s := range p.Prefixes {
		all = append(all, s+"*")
	}
	for _, s := range p.Suffixes {
		all = append(all, "*"+s)
	}
	for _, s := range p.Regexps {
		all = append(all, "~"+s)
	}
	text := strings.Join(all, "|")
	switch {
	case p.Present != nil && *p.Present:
		return "*"
	case p.Present != nil:
		return "none"
	case p.Not && len(all) > 1:
		return "!(" + text + ")"
	case p.Not:
		return "!" + text
	}
	return text
}

// otherRefs returns the attributes of a rule's conditions other than method, host and path.
func otherRefs(r *rules.Rule) []string {
	var names []string
	seen := map[string]bool{"method": true, "host": true, "path": true}
	add := func(m *rules.Match) {
		for i := range m.Predicates {
			if name := m.Predicates[i].Ref.Name; !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	add(&r.Match)
	for i := range r.Except {
		add(&r.Except[i])
	}
	return names
}

// Limits returns a rule's limits as in rule files, and the numbers of tiers and overrides.
func Limits(r *rules.Rule) string {
	texts := make([]string, len(r.Limits))
	for i := range r.Limits {
		texts[i] = limitWord(&r.Limits[i])
	}
	text := strings.Join(texts, " and ")
	if r.Tiers != nil {
		text += ", " + term.Count(len(r.Tiers.Limits), "tier")
	}
	if n := len(r.Overrides); n > 0 {
		text += ", " + term.Count(n, "override")
	}
	return text
}

func limitWord(l *rules.Limit) string {
	switch {
	case l.Unlimited:
		return "unlimited"
	case l.DenyAll:
		return "deny"
	}
	return l.Limit.String()
}
