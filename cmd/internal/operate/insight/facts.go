package insight

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sluiceproject/sluice"
)

// facts are a copy of the records of one limit, to judge it without its lock.
type facts struct {
	state             *state
	limit             *sluice.Limit
	ladder            *ladder
	now               int64
	observed          time.Duration // at most a day
	decisions, denied int64
	keys, refused     float64 // distinct keys, and denied ones
	peak              int64   // thousandths of the limit
	cells             []cell  // of the observed time
	slot              time.Duration
	records           []record
	weight            int64 // all denials, on the scale of record.held
	size              sizes
	upstream          string
	shed              int64
	keyText           func(*sluice.Rule, string) string // may be nil
}

const day = 24 * time.Hour

// facts returns the facts at a time.
func (s *state) facts(now int64) facts {
	f := facts{state: s, limit: &s.rule.Limit, now: now, observed: min(duration(now-s.since), day)}
	k := s.sketch.Load()
	if k == nil {
		return f
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn(now)
	f.ladder = k.ladders[0]
	from := (now - f.observed.Microseconds()) / minute
	day := k.coarse.since(from)
	for _, c := range day {
		f.decisions += int64(c.allowed) + int64(c.denied)
		f.denied += int64(c.denied)
	}
	f.cells, f.slot = day, coarseMinutes*time.Minute
	if f.observed < fineSlots*fineMinutes*time.Minute {
		f.cells, f.slot = k.fine.since(from), fineMinutes*time.Minute
	}
	f.keys, f.refused = k.distinct()
	f.peak = max(k.peak[0].Load(), k.peak[1].Load())
	f.records = slices.Clone(k.keys.keys)
	for i := range f.records {
		f.records[i].name = slices.Clone(f.records[i].name)
	}
	f.weight, f.size = k.weight, k.keys.sizes
	return f
}

// distinct returns the numbers of keys and of denied keys: exactly while all of them are followed, which the estimates tell,
// because keys are forgotten later. The lock must be held.
func (k *sketch) distinct() (all, refused float64) {
	all, refused = union(&k.seen[0], &k.seen[1]), union(&k.refused[0], &k.refused[1])
	if k.keys.allBelow == math.MaxUint64 && all < 1.3*float64(k.keys.sizes.all) {
		all = float64(k.keys.count[0])
	}
	if k.keys.deniedBelow == math.MaxUint64 && refused < 1.3*float64(k.keys.sizes.denied) {
		refused = float64(k.keys.count[1])
	}
	return max(1, all), min(refused, max(1, all))
}

// load returns the key's demand over its active time, relative to the limit's rate.
func (k *record) load() float64 { return k.ladder.load(k.cost, k.active) }

// hotLoad is load while the key is denied, until a pause.
func (k *record) hotLoad() float64 { return k.ladder.load(k.hotCost, k.hot) }

// longRun returns the key's demand from its first to its last request, relative to the limit's rate.
func (k *record) longRun() float64 { return k.ladder.load(k.cost, k.last-k.first) }

// needs returns the room of a rung that would have denied the key nothing, and whether it is known.
func (k *record) needs(rung int) (int64, bool) {
	if k.ladder.rungs[rung].params == nil {
		return math.MaxInt64, false
	}
	return max(k.need[0][rung], k.need[1][rung]), true
}

// own returns the denials that are certainly the key's.
func (k *record) own() int64 { return int64(k.held - k.heldErr) }

// earlyShare returns the share of arrivals after a denial that came before RetryAfter.
func (k *record) earlyShare() float64 { return ratio(float64(k.early), float64(k.early+k.waited)) }

// isDoubler reports whether most of the fixed windows that the key used up were used up around a boundary.
func (k *record) isDoubler() bool { return k.doubled >= minDoubled && 4*k.doubled >= k.full }

// isEven reports whether the key's requests come at even intervals, as a program's do. Of random arrivals 11 % of the pairs of
// gaps are as equal.
func (k *record) isEven() bool {
	return k.pairs >= 20 && ratio(float64(k.even), float64(k.pairs)) >= evenShare
}

// isCrowd reports whether the key looks like many clients: their requests come at random intervals, and some before
// RetryAfter, because each client knows only its own denials; but either retries come when RetryAfter ends, or the demand is not
// above that of a large office.
func (k *record) isCrowd() bool {
	if k.isEven() || k.earlyShare() < 0.1 {
		return false
	}
	if k.ignores() {
		return k.hotLoad() <= crowdIgnoring
	}
	return k.heeds() || k.hotLoad() <= crowdLoad
}

// ignores reports whether certainly no more requests come just after a RetryAfter has ended than at other times.
func (k *record) ignores() bool {
	for _, p := range k.promises {
		expected := float64(k.arrivals) * ratio(float64(p.time), float64(k.active))
		if expected < 50 || float64(p.prompt) >= 1.1*expected {
			return false
		}
	}
	return true
}

// heeds reports whether certainly more requests come just after a RetryAfter has ended than at other times.
func (k *record) heeds() bool {
	for _, p := range k.promises {
		expected := float64(k.arrivals) * ratio(float64(p.time), float64(k.active))
		if n := float64(p.prompt); n >= heedingLift*expected && n-expected >= heedingSigma*math.Sqrt(max(expected, 1)) {
			return true
		}
	}
	return false
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// of returns the records followed for a reason.
func (f *facts) of(reason uint8) (all []*record) {
	for i := range f.records {
		if f.records[i].reasons&reason != 0 {
			all = append(all, &f.records[i])
		}
	}
	return all
}

// few returns the smallest number of keys that have half of all denials, and their share, if they are few: at most 5 % of
// the keys, and with a share of denials that is at least three times their share of the keys.
func (f *facts) few() ([]*record, float64) {
	all := f.of(mostHeld)
	slices.SortFunc(all, func(a, b *record) int { return cmp.Or(cmp.Compare(b.own(), a.own()), cmp.Compare(a.first, b.first)) })
	most := min(max(1, int(f.keys*fewKeys)), f.size.held)
	var sum int64
	for i, k := range all[:min(most, len(all))] {
		sum += k.own()
		share, n := ratio(float64(sum), float64(f.weight)), float64(i+1)
		if share < fewDenials {
			continue
		}
		if share >= fewSurely || f.refused <= 0.5*f.keys || f.keys >= 20 {
			if share*f.keys >= fewRatio*n || f.keys < 2.5 && share >= 0.9 {
				return all[:i+1], share
			}
		}
		return nil, 0
	}
	return nil, 0
}

// median returns the median load of all keys.
func (f *facts) median() float64 {
	var all []float64
	for _, k := range f.of(ofAll) {
		all = append(all, k.load())
	}
	return quantile(all, 0.5)
}

// quantile returns the smallest of the values that at least a part q of them does not exceed; 0 of none.
func quantile(all []float64, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
}

// wellBehaved splits the sample of denied keys, and returns the share of the sample's denials that are of well-behaved ones.
func (f *facts) wellBehaved() (well, bad []*record, share float64) {
	median := f.median()
	rare := f.refused <= f.keys*rareKeys
	var good, all float64
	for _, k := range f.of(ofDenied) {
		all += float64(k.denied)
		load := k.load()
		ignores := load >= floodLoad && k.earlyShare() >= 0.5 && 10*k.denied >= 7*k.arrivals
		if ignores || rare && load >= outlierLoad && load >= outlierRatio*median {
			bad = append(bad, k)
			continue
		}
		good += float64(k.denied)
		well = append(well, k)
	}
	return well, bad, ratio(good, all)
}
