package recommend

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/ruletest"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rulefile"
)

// writeRule writes the rule and its test, and runs the test.
func (a *analysis) writeRule(ctx context.Context) error {
	var err error
	r := a.result
	r.Rule, r.RuleTest, err = r.files(ctx, false, true)
	return err
}

// files returns the rule file and its test file, in the standard format. proxies is whether the file says which proxies are
// trusted.
func (r *Report) files(ctx context.Context, shadow, proxies bool) (rule, test string, err error) {
	text := r.ruleText(shadow)
	if proxies && slices.Contains(r.Per, "ip") {
		text = fmt.Sprintf("client_ip: {trusted_proxies: [%s]}\n\n%s", strings.Join(r.Proxies, ", "), text)
	}
	formattedRule, err := rulefile.Format(r.Name+".yaml", []byte(text))
	if err != nil {
		return "", "", err
	}
	formattedTest, err := rulefile.Format(r.Name+"_test.yaml", []byte(r.testText(shadow)))
	if err != nil {
		return "", "", err
	}
	return string(formattedRule), string(formattedTest), r.try(ctx, formattedRule, formattedTest)
}

// try compiles the rule and runs the test.
func (r *Report) try(ctx context.Context, rule, test []byte) error {
	loaded, err := rulefile.LoadFiles(rulefile.Options{}, rulefile.File{Name: r.Name + ".yaml", Data: rule})
	if err != nil {
		return err
	}
	f, err := ruletest.Parse(r.Name+"_test.yaml", test)
	if err != nil {
		return err
	}
	f.Set = loaded.Set
	results, err := f.Run(ctx, func(string) bool { return true })
	if err != nil {
		return err
	}
	for i := range results {
		if !results[i].Passed() {
			return fmt.Errorf("recommend: the rule does not pass its test: %v", results[i].Failures)
		}
	}
	return nil
}

func (r *Report) ruleText(shadow bool) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Recommended from %s of %s, %s to %s.\n", term.Count(r.Requests, "request"), term.Count(r.Keys, "key"),
		r.Start.Format(time.DateTime), r.End.Format(time.DateTime+" UTC"))
	fmt.Fprintf(&b, "# Confidence: %s. Clients denied in blocks that did not train: %d of %d.\n",
		r.Confidence.Level, r.Validation.Clients.KeysDenied, r.Validation.Clients.Keys)
	fmt.Fprintf(&b, "rules:\n  - name: %s\n", r.Name)
	if len(r.Per) > 0 {
		fmt.Fprintf(&b, "    per: [%s]\n", strings.Join(r.Per, ", "))
	}
	fmt.Fprintf(&b, "    limit: %s\n", limitText(r.Limit))
	if r.HasCost {
		fmt.Fprintf(&b, "    cost: {attr: cost}\n")
	}
	if r.For == Queue {
		fmt.Fprintf(&b, "    on_limit: delay\n")
	}
	if shadow {
		fmt.Fprintf(&b, "    shadow: true\n")
	}
	if r.For != Concurrency && r.Config.Capacity.Window > 0 {
		fmt.Fprintf(&b, "\n  - name: %s-total\n    limit: %s\n", r.Name, limitText(total(r.Config.Capacity)))
		if r.HasCost {
			fmt.Fprintf(&b, "    cost: {attr: cost}\n")
		}
		if shadow {
			fmt.Fprintf(&b, "    shadow: true\n")
		}
	}
	return b.String()
}

// mostLog is the maximum count of a sliding log.
const mostLog = 10_000

// total returns a limit that never allows more than the capacity in any second: a sliding log, or above its maximum count a
// bucket of half the capacity with a burst of the other half.
func total(capacity Rate) sluice.Limit {
	perSecond := max(1, int64(capacity.PerSecond()))
	if perSecond <= mostLog {
		return sluice.PerSecond(perSecond).WithAlgorithm(sluice.SlidingWindowLog)
	}
	return sluice.PerSecond(perSecond - perSecond/2).WithBurst(perSecond / 2)
}

// limitText returns a limit as in rule files.
func limitText(l sluice.Limit) string {
	switch rate := (Rate{l.Count, l.Window}).String(); l.Algorithm {
	case sluice.Concurrency:
		return fmt.Sprintf("{concurrent: %d}", l.Count)
	case sluice.TokenBucket:
		return fmt.Sprintf("{rate: %s, burst: %d}", rate, l.Burst)
	case sluice.LeakyBucket, sluice.LeakyQueue:
		return fmt.Sprintf("{rate: %s, burst: %d, algorithm: %v}", rate, l.Burst, l.Algorithm)
	default:
		if l.Align == sluice.AlignCalendar {
			return fmt.Sprintf("{rate: %d/day, align: calendar}", l.Count)
		}
		return fmt.Sprintf("{rate: %s, algorithm: %v}", rate, l.Algorithm)
	}
}

// testText returns a test of the boundary: as much as is allowed at once, and one more.
func (r *Report) testText(shadow bool) string {
	var b strings.Builder
	n := r.Limit.Max()
	fmt.Fprintf(&b, "rules: [%s.yaml]\ntests:\n  - name: %s allows %d at once\n    requests:\n", r.Name, r.Name, n)
	if r.Config.Capacity.Window > 0 && r.For != Concurrency {
		n = min(n, total(r.Config.Capacity).Max())
	}
	client := r.testClient()
	line := func(what, expect string) {
		if shadow && expect == "deny" {
			expect = "allow, shadow: " + r.Name
		}
		fmt.Fprintf(&b, "      - {request: GET /%s%s, expect: %s}\n", client, what, expect)
	}
	duration := ""
	if r.For == Concurrency {
		duration = ", duration: 1s"
	}
	if r.HasCost {
		costOf := func(n int64) string { return strings.Replace(client, "}", fmt.Sprintf(", cost: %d}", n), 1) }
		base := client
		if !strings.Contains(base, "attributes: {") {
			costOf = func(n int64) string { return base + fmt.Sprintf(", attributes: {cost: %d}", n) }
		}
		client = costOf(n)
		line("", "allow")
		client = costOf(1)
		line("", "deny")
		return b.String()
	}
	line(fmt.Sprintf(", times: %d%s", n, duration), "allow")
	if r.For == Queue {
		line("", "deny")
		return b.String()
	}
	line(duration, "deny")
	return b.String()
}

// testClient returns the fields of a request in a test that set the rule's key.
func (r *Report) testClient() string {
	fields := map[string][]string{}
	for _, ref := range r.Per {
		kind, name, _ := strings.Cut(ref, ":")
		switch kind {
		case "ip":
			fields["ip"] = []string{"192.0.2.1"}
		case "header", "cookie", "attr", "claim":
			key := map[string]string{"header": "headers", "cookie": "cookies", "attr": "attributes", "claim": "claims"}[kind]
			fields[key] = append(fields[key], name+": a")
		}
	}
	var b strings.Builder
	for _, key := range []string{"ip", "headers", "cookies", "claims", "attributes"} {
		switch values := fields[key]; {
		case len(values) == 0:
		case key == "ip":
			b.WriteString(", ip: " + values[0])
		default:
			fmt.Fprintf(&b, ", %s: {%s}", key, strings.Join(values, ", "))
		}
	}
	return b.String()
}
