package insight

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
)

func (f *facts) noVerdict(why string) Verdict {
	v := Verdict{Kind: NoVerdict, Confidence: Low, Text: why}
	if why == "" {
		v.Text = fmt.Sprintf("%s decisions in %s; a verdict needs %s.", number(f.decisions), period(f.observed), number(minDecisions))
	}
	return v
}

// neverNear returns the verdict if the limit is never near, which fewer decisions can show. Nil: it is, or nothing is known.
func (f *facts) neverNear() *Verdict {
	enough := f.decisions >= minDecisions || f.decisions >= minIdle && f.observed >= time.Hour || f.observed >= day
	if f.peak > nearPeak || f.denied > 0 || f.shed > 0 || !enough {
		return nil
	}
	v := Verdict{Kind: NeverNear, Text: fmt.Sprintf("No request in %s.", period(f.observed)), Advice: Advice{Text: "Nothing to do."}}
	if f.decisions > 0 {
		v.Text = fmt.Sprintf("Peak %s of the limit in %s.", percent(float64(f.peak)/1000), period(f.observed))
		v.Evidence = []string{fmt.Sprintf("%s decisions about %s, none denied", number(f.decisions), keys(f.keys))}
		if l := f.scaled(2 * float64(f.peak) / 1000); l != nil {
			v.Advice = Advice{Text: "Nothing to do, or lower it to " + RuleText(l) + " as a guard.", Limit: l}
		}
	}
	return &v
}

func (f *facts) fits() Verdict {
	v := Verdict{Kind: Fits, Text: fmt.Sprintf("Nothing denied in %s. The busiest key used %s of its limit.", period(f.observed), percent(float64(f.peak)/1000))}
	if f.denied > 0 {
		var episodes, recovered float64
		for _, k := range f.of(ofDenied) {
			episodes += float64(k.episodes)
			recovered += float64(k.recovered)
		}
		v.Text = fmt.Sprintf("%s of the keys denied; %s recover within two Retry-After.", percent(f.refused/f.keys), percent(ratio(recovered, episodes)))
		v.Evidence = []string{f.spread()}
	}
	return v
}

func (f *facts) tooLoose() Verdict {
	v := Verdict{
		Kind: TooLoose, Text: fmt.Sprintf("Upstream %s shed %s requests while this rule allowed all of them.", f.upstream, number(f.shed)),
		Evidence: []string{
			fmt.Sprintf("%s decisions about %s, none denied", number(f.decisions), keys(f.keys)),
			fmt.Sprintf("the busiest key used %s of its limit", percent(float64(f.peak)/1000)),
		},
		Advice: Advice{Text: "Lower the limit, in shadow mode first."},
	}
	var use []float64
	for _, k := range f.of(ofAll) {
		use = append(use, float64(max(k.use[0], k.use[1]))/1000)
	}
	if l := f.scaled(quantile(use, 0.9)); l != nil {
		v.Advice = Advice{Text: "Lower the limit to " + RuleText(l) + ", in shadow mode first.", Limit: l}
	}
	return v
}

func (f *facts) abuser(few []*record, share float64) Verdict {
	v := Verdict{Kind: OneAbuser, Advice: Advice{Text: "Keep the limit. Block the key, or write to its owner."}}
	who, have := f.name(few[0]), "has"
	if len(few) > 1 {
		who, have = fmt.Sprintf("%d keys, first of all %s,", len(few), who), "have"
		v.Advice.Text = "Keep the limit. Block the keys, or write to their owners."
	}
	v.Text = fmt.Sprintf("%s %s %s of the denials", who, have, percent(share))
	if few[0].earlyShare() >= 0.5 {
		v.Text += map[bool]string{true: " and retries", false: " and retry"}[len(few) == 1] + " before Retry-After"
	}
	v.Text += "."
	v.Evidence = append([]string{f.spread()}, f.behaviour(few[0])...)
	return v
}

// behaviour describes a key in at most three facts.
func (f *facts) behaviour(k *record) []string {
	all := []string{fmt.Sprintf("%s of its requests denied", percent(ratio(float64(k.denied), float64(k.arrivals))))}
	if load := k.hotLoad(); !math.IsNaN(load) {
		all = append(all, fmt.Sprintf("while denied it asks for %.3g times the rate of the limit; half of all keys ask for %.2g or less", load, f.median()))
	}
	if k.isEven() {
		return append(all, "its requests come at even intervals, like a program's")
	}
	return append(all, fmt.Sprintf("%s of its requests after a denial came before Retry-After", percent(k.earlyShare())))
}

func (f *facts) flood(bad []*record, share float64) Verdict {
	n := f.refused * float64(len(bad)) / float64(max(1, len(f.of(ofDenied))))
	return Verdict{
		Kind:     OneAbuser,
		Text:     fmt.Sprintf("%s ask for many times the limit and have %s of the denials.", keys(n), percent(share)),
		Evidence: append([]string{f.spread()}, f.behaviour(bad[0])...),
		Advice:   Advice{Text: "Keep the limit. Block the keys, or deny them by what they have in common."},
	}
}

func (f *facts) sharedKey(few []*record, share float64) Verdict {
	k := few[0]
	v := Verdict{
		Kind:       SharedKey,
		Text:       fmt.Sprintf("%s has %s of the denials, and looks like many clients behind one key.", f.name(k), percent(share)),
		Evidence:   append([]string{f.spread()}, f.behaviour(k)...),
		Advice:     Advice{Text: "Count by user or API key instead, or give this key an override. Do not block it."},
		Confidence: Low,
	}
	if len(few) > 1 {
		v.Text = fmt.Sprintf("%d keys, first of all %s, have %s of the denials, and look like many clients each.", len(few), f.name(k), percent(share))
	}
	if k.heeds() {
		v.Confidence = Medium
		v.Evidence[len(v.Evidence)-1] = "requests come when Retry-After ends, and others before"
	}
	return v
}

func (f *facts) doubling(doublers []*record) Verdict {
	k := doublers[0]
	for _, other := range doublers {
		if other.doubled > k.doubled {
			k = other
		}
	}
	v := Verdict{
		Kind: BoundaryDoubling,
		Text: fmt.Sprintf("%s used up to twice the limit around the boundaries of %d windows.", f.name(k), k.doubled),
		Evidence: []string{
			fmt.Sprintf("%d of its %d used-up windows were used up on both sides of a boundary", min(2*k.doubled, k.full), k.full),
			f.spread(),
		},
		Advice: Advice{Text: "A sliding window has no boundaries; a calendar window cannot slide: add a second limit with a short window."},
	}
	if f.limit.Align != sluice.AlignCalendar {
		l := sluice.Limit{Count: f.limit.Count, Window: f.limit.Window, Algorithm: sluice.SlidingWindowLog}
		if l.Count > maxLog {
			l.Algorithm, l.SubWindows = sluice.SlidingWindowCounter, 10
		}
		if built, err := l.Build(); err == nil {
			v.Advice = Advice{Text: "Use " + RuleText(built) + ", which has no boundaries.", Limit: built}
		}
	}
	return v
}

// maxLog is the largest count for which a log is advised: it stores 8 bytes a request.
const maxLog = 1000

func (f *facts) tooStrict(well []*record) Verdict {
	v := Verdict{Kind: TooStrict, Evidence: []string{f.spread(), f.concentration(), f.retries(well), f.onset()}}
	v.Text = fmt.Sprintf("%s of %s were denied.", number(round(f.refused)), keys(f.keys))
	var loads []float64
	for _, k := range well {
		loads = append(loads, k.longRun())
	}
	if q := quantile(loads, 0.9); q > 0 && f.limit.Algorithm != sluice.Concurrency {
		rate := sluice.Limit{Count: niceUp(q * float64(f.limit.Count)), Window: f.ladder.limitWindow()}
		v.Text = fmt.Sprintf("%s of %s were denied, although 90 %% of them stay under %s.", number(round(f.refused)), keys(f.keys), rate)
	}
	l, left := f.moreRate(well)
	v.Advice = f.loosen(l, left, "Raise the limit to %s: %s would be denied.")
	return v
}

func (f *facts) bursts(well []*record, sale *span) Verdict {
	v := Verdict{Kind: BurstsDenied, Evidence: []string{f.spread(), f.concentration(), f.retries(well), f.onset()}}
	share := percent(ratio(float64(f.denied), float64(f.decisions)))
	if sale != nil {
		begin := time.UnixMicro(f.now).Add(-f.slot * time.Duration(len(f.cells)-sale.from)).UTC()
		v.Text = fmt.Sprintf("%s denied, most of it within %s from %s.", share, period(f.slot*time.Duration(sale.slots)), begin.Format("15:04 MST"))
	} else {
		v.Text = fmt.Sprintf("%s denied, although most of the denied keys stay under the rate in the long run.", share)
	}
	l, left := f.moreBurst(well)
	v.Advice = f.loosen(l, left, "%s would deny %s at the same long-run rate.")
	return v
}

// loosen returns the advice to use a looser limit, which leaves a part of the denied keys denied.
func (f *facts) loosen(l *sluice.Limit, left float64, format string) Advice {
	switch {
	case f.state.security.Load():
		return Advice{Text: "Security rule: never loosened by advice."}
	case l == nil:
		return Advice{Text: "Raise the limit, in shadow mode first. The sketch does not show by how much.", Loosens: true}
	}
	return Advice{Text: fmt.Sprintf(format, RuleText(l), keys(left*f.refused)), Limit: l, Loosens: true, Denied: round(left * f.refused)}
}

// spread says how many keys and decisions are denied.
func (f *facts) spread() string {
	if f.state.keyless.Load() {
		return fmt.Sprintf("%s of %s decisions denied", percent(ratio(float64(f.denied), float64(f.decisions))), number(f.decisions))
	}
	return fmt.Sprintf("%s of about %s denied, %s of %s decisions", number(round(f.refused)), keys(f.keys),
		percent(ratio(float64(f.denied), float64(f.decisions))), number(f.decisions))
}

func (f *facts) concentration() string {
	var most int64
	for _, k := range f.of(mostHeld) {
		most = max(most, k.own())
	}
	return fmt.Sprintf("the most denied key has %s of the denials", percent(ratio(float64(most), float64(f.weight))))
}

func (f *facts) retries(of []*record) string {
	var early, all float64
	for _, k := range of {
		early += float64(k.early)
		all += float64(k.early + k.waited)
	}
	return fmt.Sprintf("%s of the requests after a denial came before Retry-After", percent(ratio(early, all)))
}

// onset says when most denials were.
func (f *facts) onset() string {
	s := densest(f.cells, burstShare)
	return fmt.Sprintf("80 %% of the denials within %s of %s", period(f.slot*time.Duration(s.slots)), period(f.slot*time.Duration(len(f.cells))))
}

func (f *facts) name(k *record) string {
	switch {
	case len(k.name) == 0:
		return "A key"
	case f.keyText != nil:
		return f.keyText(f.state.rule, string(k.name))
	}
	return string(k.name)
}

func round(x float64) int64 { return int64(math.Round(x)) }

func keys(n float64) string {
	if round(n) == 1 {
		return "1 key"
	}
	return number(round(n)) + " keys"
}

func percent(part float64) string {
	switch p := 100 * part; {
	case p == 0 || p >= 10:
		return fmt.Sprintf("%.0f %%", p)
	case p < 0.1:
		return "< 0.1 %"
	default:
		return fmt.Sprintf("%.1f %%", p)
	}
}

// number writes thousands with commas.
func number(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func period(d time.Duration) string {
	switch {
	case d >= 2*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	case d >= 2*time.Minute:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

// RuleText writes a limit as in a rule file.
func RuleText(l *sluice.Limit) string {
	parts := []string{"rate: " + sluice.Limit{Count: l.Count, Window: l.Window}.String()}
	if l.Algorithm == sluice.TokenBucket || l.Algorithm == sluice.LeakyBucket || l.Algorithm == sluice.LeakyQueue {
		if l.Burst != 0 && l.Burst != l.Count {
			parts = append(parts, fmt.Sprintf("burst: %d", l.Burst))
		}
	}
	if l.Algorithm != sluice.TokenBucket {
		parts = append(parts, "algorithm: "+l.Algorithm.String())
	}
	if l.SubWindows > 1 {
		parts = append(parts, fmt.Sprintf("sub_windows: %d", l.SubWindows))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
