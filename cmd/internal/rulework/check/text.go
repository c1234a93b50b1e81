package check

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// Write prints the report as text.
func (r *Report) Write(w io.Writer) error {
	s := term.NewStyle(w)
	failures, warnings := 0, 0
	failing := make(map[string]bool) // files with errors
	for i := range r.Findings {
		r.Findings[i].Write(w, s)
		if r.Findings[i].Severity == "error" {
			failures++
			failing[r.Findings[i].File] = true
		} else {
			warnings++
		}
	}
	if len(r.Findings) > 0 {
		fmt.Fprintln(w)
	}
	if failures > 0 {
		_, err := fmt.Fprintf(w, "%s in %s\n", s.Red(term.Count(failures, "error")), term.Count(len(failing), "file"))
		return err
	}
	rows := [][]string{{"RULE", "MATCHES", "PER", "LIMIT"}}
	for i := range r.Rules {
		rule := &r.Rules[i]
		per, limit := strings.Join(rule.Per, ", "), rule.Limit
		if per == "" {
			per = "(all clients)"
		}
		if rule.Mode != "enforced" {
			limit += " (" + rule.Mode + ")"
		}
		rows = append(rows, []string{term.Printable(rule.Name), term.Printable(rule.Matches), term.Printable(per), limit})
	}
	if len(r.Rules) > 0 {
		if err := term.Table(w, rows); err != nil {
			return err
		}
		fmt.Fprintln(w)
		r.writeBounds(w)
		r.writeSettleBounds(w)
		r.writeConcurrency(w)
	}
	verdict := s.Green("ok")
	if warnings > 0 {
		verdict = s.Yellow(term.Count(warnings, "warning"))
	}
	digest := ""
	if r.Digest != "" {
		digest = ", digest " + r.Digest
	}
	_, err := fmt.Fprintf(w, "%s: %s in %s%s\n", verdict, r.contents(), term.Count(len(r.Files), "file"), digest)
	return err
}

// contents describes the contents of the files: "3 rules", "2 limits in domain auth".
func (r *Report) contents() string {
	var parts []string
	if n := len(r.Configurations); n > 0 {
		parts = append(parts, term.Count(n, "configuration file"))
	}
	if n := len(r.Accounts); n > 0 {
		parts = append(parts, term.Count(n, "account file"))
	}
	if len(r.Rules) > 0 || len(r.Domains) == 0 && len(r.Configurations) == 0 && len(r.Accounts) == 0 {
		parts = append(parts, term.Count(len(r.Rules), "rule"))
	}
	for _, d := range r.Domains {
		parts = append(parts, fmt.Sprintf("%s of domain %s", term.Count(d.Limits, "limit"), term.Printable(d.Name)))
	}
	return strings.Join(parts, ", ")
}
