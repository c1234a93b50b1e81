package serve

import (
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/operate/insight"
	"github.com/sluiceproject/sluice/rules"
)

// newVerdicts returns the recorder that judges the rules.
func newVerdicts(set func() *rules.Set) *insight.Recorder {
	return insight.New(insight.Config{Rules: set, KeyText: func(rule *sluice.Rule, key string) string {
		var parts []string
		for _, e := range set().KeyParts(rule, key) {
			parts = append(parts, e.Name+"="+e.Value)
		}
		return strings.Join(parts, ", ")
	}})
}

// verdictsOf returns the verdicts as messages of the admin API.
func verdictsOf(from *insight.Recorder) map[string]adminmsg.Verdict {
	all := make(map[string]adminmsg.Verdict)
	for name, v := range from.Verdicts() {
		m := adminmsg.Verdict{
			Kind: string(v.Kind), Limit: v.Limit, Since: v.Since, Text: v.Text, Evidence: v.Evidence, Confidence: v.Confidence,
			NeedsChange: v.Kind.NeedsChange(),
		}
		if v.Advice.Text != "" {
			m.Advice = &adminmsg.Advice{Text: v.Advice.Text}
		}
		if l := v.Advice.Limit; l != nil {
			m.Advice.Rate, m.Advice.Algorithm = sluice.Limit{Count: l.Count, Window: l.Window}.String(), l.Algorithm.String()
			m.Advice.Burst, m.Advice.Limit = l.Burst, insight.RuleText(l)
		}
		all[name] = m
	}
	return all
}
