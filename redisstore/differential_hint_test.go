package redisstore

import (
	"math/big"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/step"
)

// runID returns the server's run ID.
func runID(do func(command ...string) (string, error)) string {
	info, err := do("INFO", "server")
	if err != nil {
		panic(err)
	}
	_, id, _ := strings.Cut(info, "run_id:")
	return strings.Fields(id)[0]
}

// hint adds hints to a call, and updates the states of the model as the hints should. It returns how many hints should
// change a state.
func (d *differential) hint(c *call, plain bool) (useful int64) {
	if d.rng.IntN(2) == 0 || plain && d.rng.IntN(2) == 0 || // hints disable the fast path
		d.marks && d.rng.IntN(20) > 0 { // hints remove marks
		return 0
	}
	c.asks = true
	for i := range c.cells {
		p, key := c.paramsOf(i), c.keys[2*i]
		if p.Kind >= step.Log || d.rng.IntN(3) == 0 {
			continue
		}
		stored := d.cells[key]
		if stored == nil {
			stored = &cell{}
			d.cells[key] = stored
		}
		now, known := c.firstTime(i), c.knownOf(i)
		s := d.sighting(p, stored, now)
		c.hints = append(c.hints, hint{i, s})
		c.mixed = c.mixed || s.state.Shape != p.Shape()
		if s.from.server == d.runID {
			continue
		}
		if m := laterOf(p, now, *stored, cell{state: s.state, words: s.words}, known); m != nil {
			*stored = *m
			useful++
		}
	}
	d.hinted += len(c.hints)
	d.useful += int(useful)
	return useful
}

// firstTime returns the time of the first take on a cell.
func (c *call) firstTime(cell int) int64 {
	return c.firstOf(cell).time
}

// sighting returns a random state that a process may have received for a cell: slightly different, or with another
// history, sometimes under other limit parameters or from a wrong clock.
func (d *differential) sighting(p *step.Params, stored *cell, now int64) lastState {
	seen := cell{state: stored.state, words: slices.Clone(stored.words)}
	if seen.state.ExpiresAt <= now || d.rng.IntN(3) == 0 {
		seen = cell{}
	}
	q := p
	if d.rng.IntN(8) == 0 {
		if other := private.ParamsOf(d.limits[d.rng.IntN(len(d.limits))]); other.Identity() == p.Identity() {
			q = other
		}
	}
	at := now
	switch d.rng.IntN(6) {
	case 0:
		at -= d.rng.Int64N(q.Length)
	case 1:
		at += d.rng.Int64N(min(q.Length, step.Year))
	}
	for range 1 + d.rng.IntN(3) {
		most := min(max(1, q.Limit()), 1<<40)
		seen.take(q, at, step.Request{Cost: 1 + d.rng.Int64N(most), Charge: true})
	}
	if seen.state.ExpiresAt > now && p.Kind != step.Slices && d.rng.IntN(10) == 0 {
		seen.state.ExpiresAt += d.rng.Int64N(5) - 2
	}
	if d.rng.IntN(10) == 0 { // with a negative balance
		seen.adjust(q, at, step.Settlement{At: at, Delta: 1 + d.rng.Int64N(min(2*q.Limit()+1, 1<<40))})
	}
	from := &serverEpoch{server: d.runID}
	if d.rng.IntN(4) > 0 {
		from.server = strings.Repeat("f", 40)
	}
	s := lastState{state: seen.state, from: from}
	if p.Kind == step.Slices { // hints contain no marks
		s.words = seen.words
	}
	return s
}

// laterOf returns the state that the script should compute from a stored state and a hint, or nil if the stored one
// stays. It is written for clarity, not speed.
func laterOf(p *step.Params, now int64, s, h cell, known *step.Known) *cell {
	if h.state.ExpiresAt <= now {
		return nil
	}
	h.words = slices.Clone(h.words)
	h.adopt(p, now, known, false)
	s.words = slices.Clone(s.words)
	s.adopt(p, now, known, false)
	if s.state.ExpiresAt <= now {
		s = cell{words: make([]uint64, len(h.words))}
	}
	switch p.Kind {
	case step.Bucket:
		return laterBucket(p, now, s, h)
	case step.Interval:
		return laterInterval(p, now, s, h)
	case step.Window:
		return laterWindow(p, now, s, h)
	case step.Counter:
		return laterCounter(p, now, s, h)
	}
	return laterSlices(p, now, s, h)
}

// instant returns the exact time when a bucket is full.
func instant(at int64, frac, den uint64) *big.Rat {
	less := new(big.Rat).SetFrac(new(big.Int).SetUint64(frac), new(big.Int).SetUint64(den))
	return new(big.Rat).Sub(new(big.Rat).SetInt64(at), less)
}

// keptFull is how long the state of a bucket with an initial level is kept once it is full.
const keptFull = 24 * 3600 * 1_000_000

func laterBucket(p *step.Params, now int64, s, h cell) *cell {
	drips := p.Drips()
	keep := int64(0)
	if p.HasInitial {
		keep = keptFull
		for _, c := range []*cell{&s, &h} {
			if c.state.ExpiresAt > now { // the time when it is full; nil if that has passed
				if c.state.ExpiresAt -= keep; c.state.ExpiresAt <= now {
					c.state = step.State{ExpiresAt: now}
				}
			}
		}
	}
	for _, c := range []*cell{&s, &h} {
		if c.state.Value >= drips.Den { // of a limit with the same shape but another denominator
			c.state.Value = 0
		}
	}
	full := instant(h.state.ExpiresAt, h.state.Value, drips.Den)
	empty := instant(now+drips.FillQ, 0, 1)
	empty.Add(empty, new(big.Rat).SetFrac(new(big.Int).SetUint64(drips.FillR), new(big.Int).SetUint64(drips.Den)))
	if full.Cmp(empty) > 0 { // rounded up to a microsecond, minus a fraction
		full = empty
		num, den := empty.Num(), empty.Denom()
		up := new(big.Int).Add(num, new(big.Int).Sub(den, big.NewInt(1)))
		up.Div(up, den)
		frac := new(big.Rat).Sub(new(big.Rat).SetInt(up), empty)
		frac.Mul(frac, new(big.Rat).SetInt(new(big.Int).SetUint64(drips.Den)))
		h.state.ExpiresAt, h.state.Value = up.Int64(), frac.Num().Uint64()
	}
	before := instant(now, 0, 1)
	if p.HasInitial && s.state.ExpiresAt == 0 { // a bucket without a state is new
		before = instant(now+drips.NewQ, 0, 1)
		before.Add(before, new(big.Rat).SetFrac(new(big.Int).SetUint64(drips.NewR), new(big.Int).SetUint64(drips.Den)))
	}
	if s.state.ExpiresAt > now {
		before = instant(s.state.ExpiresAt, s.state.Value, drips.Den)
	}
	if full.Cmp(before) <= 0 {
		return nil
	}
	h.state.Shape = p.Shape()
	h.state.ExpiresAt += keep
	return &h
}

func laterInterval(p *step.Params, now int64, s, h cell) *cell {
	refills := (h.state.ExpiresAt - now + p.Length - 1) / p.Length
	base := h.state.ExpiresAt - refills*p.Length
	rest := min(int64(h.state.Value), p.Count-1)
	count, burst := big.NewInt(p.Count), big.NewInt(p.Burst)
	missing := new(big.Int).Sub(new(big.Int).Mul(big.NewInt(refills), count), big.NewInt(rest))
	if missing.Cmp(burst) > 0 {
		refills = (p.Burst + p.Count - 1) / p.Count
		rest = refills*p.Count - p.Burst
	}
	if most := int64(step.Horizon+step.Horizon/4) / p.Length; refills > most {
		refills, rest = most, 0
	}
	h.state = step.State{ExpiresAt: base + refills*p.Length, Value: uint64(rest), Shape: p.Shape()}
	if s.state.ExpiresAt > h.state.ExpiresAt || s.state.ExpiresAt == h.state.ExpiresAt && s.state.Value <= h.state.Value {
		return nil
	}
	return &h
}

func laterWindow(p *step.Params, now int64, s, h cell) *cell {
	count, grace := step.WindowOf(h.state.Value)
	count = min(count, p.Count+p.SoftExcess)
	had, hadGrace := step.WindowOf(s.state.Value)
	live := s.state.ExpiresAt > now
	end := now - now%p.Length + p.Length
	switch p.Align {
	case step.FirstHit:
		end = min(h.state.ExpiresAt, now+p.Length)
		if live {
			end = min(end, s.state.ExpiresAt)
		}
	case step.Calendar:
		_, end = p.Bounds(now)
		fallthrough
	default:
		if h.state.ExpiresAt != end || live && s.state.ExpiresAt != end {
			return nil
		}
	}
	if count <= had {
		return nil
	}
	h.state = step.State{ExpiresAt: end, Value: step.WindowValue(count, max(grace, hadGrace)), Shape: p.Shape()}
	return &h
}

func laterCounter(p *step.Params, now int64, s, h cell) *cell {
	begin := now - now%p.Length
	// counts returns the counts of the current and the previous window, and whether the state is from one of the two.
	counts := func(c *cell) (cur, prev int64, fits bool) {
		cur, prev = int64(c.state.Value&step.MaxWindowCount), int64(c.state.Value>>32)
		switch start := c.state.ExpiresAt - 2*p.Length; {
		case c.state.ExpiresAt <= now:
			return 0, 0, true
		case start == begin:
			return cur, prev, true
		case start < begin && start+p.Length <= now:
			return 0, cur, start+p.Length == begin
		}
		return 0, 0, false
	}
	cur, prev, fits := counts(&s)
	seenCur, seenPrev, seenFits := counts(&h)
	seenCur, seenPrev = min(seenCur, p.Count), min(seenPrev, p.Count)
	if !fits || !seenFits || seenCur <= cur && seenPrev <= prev {
		return nil
	}
	cur, prev = max(cur, seenCur), max(prev, seenPrev)
	h.state = step.State{ExpiresAt: begin + 2*p.Length, Value: uint64(cur) | uint64(prev)<<32, Shape: p.Shape()}
	if cur == 0 { // stored as the state of the previous window
		h.state = step.State{ExpiresAt: begin + p.Length, Value: uint64(prev), Shape: p.Shape()}
	}
	return &h
}

func laterSlices(p *step.Params, now int64, s, h cell) *cell {
	slice, size := p.SliceLength(), p.Slices+1
	number := now / slice
	// counts returns the counts by number of the sub-window, and whether the state is not from later ones.
	counts := func(c *cell) (map[int64]uint64, bool) {
		all := map[int64]uint64{}
		if c.state.ExpiresAt <= now {
			return all, true
		}
		last := c.state.ExpiresAt/slice - size
		if c.state.ExpiresAt-size*slice > number*slice {
			return nil, false
		}
		for n := last - size + 1; n <= last; n++ {
			if n > number-size {
				all[n] = c.words[n%size]
			}
		}
		return all, true
	}
	had, fits := counts(&s)
	seen, seenFits := counts(&h)
	if !fits || !seenFits {
		return nil
	}
	more := false
	words := make([]uint64, size)
	for n := number - size + 1; n <= number; n++ {
		got := min(seen[n], uint64(p.Count))
		more = more || got > had[n]
		words[n%size] = max(got, had[n])
	}
	if !more {
		return nil
	}
	return &cell{words: words, state: step.State{ExpiresAt: (number + size) * slice, Shape: p.Shape()}}
}
