package insight

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
)

// Kind is the kind of a verdict.
type Kind string

// The kinds, the most urgent first.
const (
	TooStrict        Kind = "too_strict"
	BurstsDenied     Kind = "bursts_denied"
	TooLoose         Kind = "too_loose"
	SharedKey        Kind = "shared_key"
	BoundaryDoubling Kind = "boundary_doubling"
	OneAbuser        Kind = "one_abuser"
	Fits             Kind = "fits"
	NeverNear        Kind = "never_near"
	NoVerdict        Kind = "no_verdict"
)

// Kinds are all kinds.
var Kinds = []Kind{TooStrict, BurstsDenied, TooLoose, SharedKey, BoundaryDoubling, OneAbuser, Fits, NeverNear, NoVerdict}

// NeedsChange reports whether the rule should be changed.
func (k Kind) NeedsChange() bool { return slices.Index(Kinds, k) < slices.Index(Kinds, OneAbuser) }

// Confidence in a verdict.
const (
	Low    = "low"
	Medium = "medium"
	High   = "high"
)

// Verdict is the judgement on one rule.
type Verdict struct {
	Kind       Kind
	Limit      string    // name of the limit that it is about: that of the rule, or NAME#2
	Since      time.Time // when the kind was first found
	Text       string
	Evidence   []string // at most four facts
	Advice     Advice
	Confidence string
}

// Advice is what to change. It is text for people; Limit is for programs.
type Advice struct {
	Text  string
	Limit *sluice.Limit // the limit to use instead; nil: keep the limit
	// Loosens is set if Limit allows more than the limit in use. Denied is the number of keys that it would still deny.
	Loosens bool
	Denied  int64
}

// Thresholds. The package comment gives their reasons.
const (
	minDecisions = 1000
	minIdle      = 100 // decisions in an hour that suffice to say that a limit is never near
	minDenials   = 20

	fewKeys    = 0.05 // share of keys that are few
	fewDenials = 0.5
	fewRatio   = 3
	fewSurely  = 0.8 // with few keys in all

	rareKeys     = 0.1 // outliers are looked for if at most this share of keys is denied
	outlierLoad  = 3
	outlierRatio = 5
	floodLoad    = 10

	evenShare     = 0.3
	crowdLoad     = 5
	crowdIgnoring = 3 // the same, if certainly no client waits for RetryAfter

	heedingLift  = 1.2
	heedingSigma = 4

	deniedKeys      = 0.02 // share of keys that matters
	deniedDecisions = 0.005
	deniedMuch      = 0.05 // share of decisions that matters whatever the keys

	burstShare    = 0.8 // share of the denials that a flash sale has,
	burstTime     = 0.2 // in this part of the time
	burstOutside  = 0.02
	minBurstSlots = 10
	minBurstKeys  = 5 // denied keys, if a few of them have most denials

	sustained = 0.5 // share of denials of keys whose demand exceeds the rate in the long run

	minDoubled = 3
	nearPeak   = 500 // thousandths
)

// judge returns the verdict on one limit.
func (f *facts) judge() Verdict {
	v := f.kind()
	v.Limit = f.state.rule.Name
	if v.Confidence == "" {
		v.Confidence = f.confidence()
	}
	return v
}

func (f *facts) kind() Verdict {
	if f.ladder == nil && f.observed < day {
		return f.noVerdict("")
	}
	if f.limit.Algorithm == sluice.FixedWindow && f.limit.Count == 0 {
		return Verdict{Kind: Fits, Text: "The limit is 0: everything is denied, as written."}
	}
	if idle := f.neverNear(); idle != nil {
		return *idle
	}
	if f.decisions < minDecisions {
		return f.noVerdict("")
	}
	if f.denied >= minDenials {
		if v := f.aboutDenials(); v != nil {
			return *v
		}
	}
	if d := f.doublers(f.of(ofAll | ofDenied | mostHeld | mostEdges)); len(d) > 0 {
		return f.doubling(d)
	}
	if f.denied == 0 && f.shed > 0 {
		return f.tooLoose()
	}
	return f.fits()
}

// aboutDenials returns the verdict if the denials matter.
func (f *facts) aboutDenials() *Verdict {
	var v Verdict
	if f.state.keyless.Load() {
		return f.keyless()
	}
	if few, share := f.few(); few != nil {
		sale := f.flashSale()
		switch {
		case sale != nil && share < fewSurely && f.refused >= max(minBurstKeys, fewKeys*f.keys):
			v = f.bursts(nil, sale)
			v.Advice = Advice{Text: "Keep the limit: a few keys have most of the denials."}
		case 2*len(f.doublers(few)) > len(few):
			v = f.doubling(f.doublers(few))
		case f.crowdShare(few) > 0.5:
			v = f.sharedKey(few, share)
		default:
			v = f.abuser(few, share)
		}
		return &v
	}
	well, bad, share := f.wellBehaved()
	if len(bad) > 0 && share < 0.5 {
		v = f.flood(bad, 1-share)
		return &v
	}
	keys, decisions := f.refused/f.keys, ratio(float64(f.denied), float64(f.decisions))
	if f.refused < 2.5 || decisions < deniedMuch && (keys < deniedKeys || decisions < deniedDecisions) {
		return nil
	}
	v = f.tooStrictOrBursts(well)
	return &v
}

func (f *facts) tooStrictOrBursts(well []*record) Verdict {
	if s := f.flashSale(); s != nil {
		return f.bursts(well, s)
	}
	var all, over float64
	for _, k := range well {
		all += float64(k.denied)
		if k.longRun() > 1 {
			over += float64(k.denied)
		}
	}
	if f.limit.Algorithm == sluice.Concurrency || over >= sustained*all {
		return f.tooStrict(well)
	}
	return f.bursts(well, nil)
}

// keyless returns the verdict on a rule that counts all requests together. It cannot know whose requests are denied.
func (f *facts) keyless() *Verdict {
	if ratio(float64(f.denied), float64(f.decisions)) < deniedDecisions {
		return nil
	}
	all := f.of(ofAll)
	s := f.flashSale()
	if s != nil || len(all) > 0 && all[0].longRun() <= 1 {
		v := f.bursts(all, s)
		return &v
	}
	v := f.noVerdict("One key counts all requests, and the demand exceeds the limit: the decisions do not show whether many clients ask or one.")
	return &v
}

// flashSale returns the short time that has most denials, or nil if there is none, or if the rule denies outside of it too.
func (f *facts) flashSale() *span {
	if len(f.cells) < minBurstSlots {
		return nil
	}
	s := densest(f.cells, burstShare)
	if s.slots == 0 || float64(s.slots) > math.Max(1, burstTime*float64(len(f.cells))) {
		return nil
	}
	var rest cell // without the sale, and as long again before and after it
	for i, c := range f.cells {
		if i < s.from-s.slots || i >= s.from+2*s.slots {
			rest.add(int64(c.allowed), int64(c.denied))
		}
	}
	if ratio(float64(rest.denied), float64(rest.denied)+float64(rest.allowed)) > burstOutside {
		return nil
	}
	return &s
}

func (f *facts) doublers(of []*record) (all []*record) {
	for _, k := range of {
		if k.isDoubler() {
			all = append(all, k)
		}
	}
	return all
}

// crowdShare returns the share of the keys' denials that are of keys that look like crowds.
func (f *facts) crowdShare(of []*record) float64 {
	var crowd, all float64
	for _, k := range of {
		all += float64(k.own())
		if k.isCrowd() {
			crowd += float64(k.own())
		}
	}
	return ratio(crowd, all)
}

func (f *facts) confidence() string {
	switch {
	case f.decisions >= 10*minDecisions && f.observed >= 6*time.Hour:
		return High
	case f.decisions >= minDecisions && f.observed >= time.Hour:
		return Medium
	}
	return Low
}

// judged is the last verdict on a limit.
type judged struct {
	mu    sync.Mutex
	at    int64
	kind  Kind
	since int64
	had   uint16 // kinds, by their index
	last  Verdict
}

// fresh is how long a verdict is given again without a new judgement, in microseconds.
const fresh = 1_000_000

func (s *state) verdict(r *Recorder) Verdict {
	now := r.micros()
	s.judged.mu.Lock()
	defer s.judged.mu.Unlock()
	j := &s.judged
	if j.at != 0 && now-j.at < fresh {
		return j.last
	}
	f := s.facts(now)
	if r.cfg.Shed != nil {
		f.upstream, f.shed = r.cfg.Shed(*s.name.Load())
	}
	f.keyText = r.cfg.KeyText
	v := f.judge()
	if v.Kind != j.kind {
		j.kind, j.since = v.Kind, now
		j.had |= 1 << slices.Index(Kinds, v.Kind)
	}
	v.Since = time.UnixMicro(j.since).UTC()
	j.at, j.last = now, v
	return v
}

// Verdict returns the verdict on a rule: the most urgent of those on its limits. It reports whether the rule exists.
func (r *Recorder) Verdict(rule string) (Verdict, bool) {
	for _, a := range r.refresh().active {
		if a.name == rule {
			return r.judgeRule(&a), true
		}
	}
	return Verdict{}, false
}

// Verdicts returns the verdicts on all rules by name.
func (r *Recorder) Verdicts() map[string]Verdict {
	t := r.refresh()
	all := make(map[string]Verdict, len(t.active))
	for i := range t.active {
		all[t.active[i].name] = r.judgeRule(&t.active[i])
	}
	return all
}

func (r *Recorder) judgeRule(a *active) (worst Verdict) {
	for i, s := range a.limits {
		v := s.verdict(r)
		if i == 0 || slices.Index(Kinds, v.Kind) < slices.Index(Kinds, worst.Kind) {
			worst = v
		}
	}
	return worst
}

// Kinds returns the kind of the verdict on each limit, and the kinds that there were before.
func (r *Recorder) Kinds() map[string]map[string]bool {
	t := r.refresh()
	all := make(map[string]map[string]bool, len(t.byName))
	for name, s := range t.byName {
		is := s.verdict(r).Kind
		s.judged.mu.Lock()
		kinds := make(map[string]bool)
		for i, kind := range Kinds {
			if s.judged.had>>i&1 == 1 {
				kinds[string(kind)] = kind == is
			}
		}
		s.judged.mu.Unlock()
		all[name] = kinds
	}
	return all
}

// judgeEvery is the interval at which Run judges.
const judgeEvery = 30 * time.Second

// Run judges all rules regularly until ctx is done, so that the begin of a verdict is known.
func (r *Recorder) Run(ctx context.Context) {
	tick := time.NewTicker(judgeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.Verdicts()
		case <-ctx.Done():
			return
		}
	}
}
