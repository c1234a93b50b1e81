package insight

import "math"

// Why a key is followed. A record is kept while at least one reason holds.
const (
	ofAll     = 1 << iota // one of the keys with the smallest hashes: a uniform sample of all keys
	ofDenied              // likewise, of the keys that were denied
	mostHeld              // one of the keys with the most denials
	mostEdges             // fixed windows: one of the keys that most often used nearly all of a window
)

// inSample are the reasons of keys whose need is measured.
const inSample = ofAll | ofDenied

// sizes are the numbers of keys that a rule follows, by reason.
type sizes struct{ all, denied, held, edges int }

// sum returns the maximum number of records.
func (z sizes) sum() int { return z.all + z.denied + z.held + z.edges }

// maxName is the maximum length of a key that is stored. Longer keys are named by their length.
const maxName = 128

// record is the behaviour of one key, from the moment at which it began to be followed.
type record struct {
	reasons       uint8
	edged         bool    // the last decision of a fixed window left less than 20 %
	ladder        *ladder // of the key's limit
	name          []byte  // of keys with mostHeld or mostEdges
	held, edges   uint32  // space saving: weights by reason
	heldErr       uint32  // part of held that may belong to other keys
	first, last   int64   // arrivals, µs
	active        int64   // µs between arrivals, pauses cut off
	cost          int64   // of all arrivals, allowed or denied
	hot, hotCost  int64   // the same, but only until a pause after each denial
	lastDenied    int64
	arrivals      uint32
	denied        uint32
	early, waited uint32 // arrivals after a denial: before and after its RetryAfter
	gap           int64  // the last one, µs
	pairs, even   uint32 // pairs of consecutive gaps, and those of nearly equal length
	retryAt       int64  // after a denial: when a retry succeeds; else 0

	promises [2]promise // RetryAfter exactly, and in whole seconds as HTTP has it

	episodes, recovered uint32 // runs of denials, and those that ended within twice the first RetryAfter
	inEpisode           bool
	recoverBy           int64
	patience            int64 // µs that the key has waited for RetryAfter
	windowEnd           int64 // fixed windows: end of the current one, and cost by halves of windows
	before, head, tail  int64 // in the second half of the previous window, and in both halves of the current one
	full, doubled       uint32
	use                 [2]int64 // highest use of the limit in thousandths, in this and the previous epoch
	counters            [rungs]counter
	need                [2][rungs]int64 // room needed to deny nothing, by epoch
}

// followed are the keys that a rule follows.
type followed struct {
	sizes  sizes
	hashes []uint64 // of records, in the same order
	keys   []record
	count  [4]int // records by reason
	// Only hashes below these limits are sampled.
	allBelow, deniedBelow uint64
	orphaned              bool // a record has lost its last reason
	dropped               int  // records since the filter was made
}

func newFollowed(z sizes) *followed {
	return &followed{sizes: z, allBelow: math.MaxUint64, deniedBelow: math.MaxUint64}
}

func (f *followed) find(h uint64) int {
	for i, other := range f.hashes {
		if other == h {
			return i
		}
	}
	return -1
}

// decision is a decision about one key.
type decision struct {
	key        string
	hash       uint64
	now, cost  int64
	denied     bool
	near       bool // allowed, and less than 20 % remain
	granted    int64
	use        int64 // of the limit, in thousandths
	retryAfter int64 // µs, if denied
	resetAfter int64 // µs
}

// add follows the decision if its key is followed or should be.
func (f *followed) add(l *ladder, d *decision) {
	i := f.find(d.hash)
	var reasons uint8
	if d.hash < f.allBelow {
		reasons |= ofAll
	}
	if d.denied && d.hash < f.deniedBelow {
		reasons |= ofDenied
	}
	edge := d.near && l.window > 0
	if i < 0 && reasons == 0 && !d.denied && !edge {
		return
	}
	if i < 0 {
		i = f.open(l, d)
	}
	if sampled := f.keys[i].reasons&inSample != 0; reasons != 0 && !sampled {
		f.keys[i].begin(l, d)
	}
	f.join(i, reasons)
	if d.denied {
		f.keys[i].held++
		i = f.compete(i, mostHeld)
	}
	if edge && !f.keys[i].edged {
		f.keys[i].edges++
		i = f.compete(i, mostEdges)
	}
	k := &f.keys[i]
	k.edged = d.near
	if k.reasons&(mostHeld|mostEdges) != 0 && len(k.name) == 0 && len(d.key) <= maxName {
		k.name = append(k.name[:0], d.key...)
	}
	k.arrive(l, d)
	f.trim()
}

// open begins a record.
func (f *followed) open(l *ladder, d *decision) int {
	i := len(f.keys)
	if i == cap(f.keys) { // append would double it
		const more = 4
		f.keys = append(make([]record, 0, i+more), f.keys...)
		f.hashes = append(make([]uint64, 0, i+more), f.hashes...)
	}
	f.hashes, f.keys = append(f.hashes, d.hash), f.keys[:i+1]
	k := &f.keys[i]
	*k = record{name: k.name[:0]}
	k.ladder, k.first, k.last = l, d.now, d.now
	return i
}

// begin starts to measure the room that a key of a sample needs. If it is denied, it has used up its limit.
func (k *record) begin(l *ladder, d *decision) {
	if !d.denied {
		return
	}
	for n := range l.rungs {
		if r := &l.rungs[n]; r.params != nil {
			k.counters[n] = r.spent(d.now-k.patience, l.max)
		}
	}
}

// join adds the reasons of a sample. If the sample is too large, the key with the largest hash leaves it.
func (f *followed) join(i int, reasons uint8) {
	k := &f.keys[i]
	reasons &^= k.reasons
	k.reasons |= reasons
	if reasons&ofAll != 0 {
		if f.count[0]++; f.count[0] > f.sizes.all {
			f.allBelow = f.dropLargest(ofAll)
			f.count[0]--
		}
	}
	if reasons&ofDenied != 0 {
		if f.count[1]++; f.count[1] > f.sizes.denied {
			f.deniedBelow = f.dropLargest(ofDenied)
			f.count[1]--
		}
	}
}

func (f *followed) dropLargest(reason uint8) uint64 {
	largest, at := uint64(0), -1
	for i, h := range f.hashes {
		if f.keys[i].reasons&reason != 0 && h >= largest {
			largest, at = h, i
		}
	}
	f.keys[at].reasons &^= reason
	f.orphaned = f.orphaned || f.keys[at].reasons == 0
	return largest
}

func (k *record) weight(reason uint8) *uint32 {
	if reason == mostHeld {
		return &k.held
	}
	return &k.edges
}

// compete gives a key a place among those with the largest weights (space saving): a new key takes the place of the
// smallest and inherits its weight. It returns the index of the record, which may have moved.
func (f *followed) compete(i int, reason uint8) int {
	k, size, count := &f.keys[i], f.sizes.held, &f.count[2]
	if reason == mostEdges {
		size, count = f.sizes.edges, &f.count[3]
	}
	if k.reasons&reason != 0 {
		return i
	}
	if *count < size {
		k.reasons |= reason
		*count++
		return i
	}
	least := -1
	for j := range f.keys {
		if o := &f.keys[j]; o.reasons&reason != 0 && (least < 0 || *o.weight(reason) < *f.keys[least].weight(reason)) {
			least = j
		}
	}
	w, own := *f.keys[least].weight(reason), *k.weight(reason)
	if k.arrivals > 0 && own <= w { // its own weight is exact
		return i
	}
	if own <= w {
		*k.weight(reason) += w
		if reason == mostHeld {
			k.heldErr = w
		}
	}
	k.reasons |= reason
	f.keys[least].reasons &^= reason
	return f.drop(least, i)
}

// drop removes the record at i if there is no reason left to keep it. It returns the new index of the record at keep.
func (f *followed) drop(i, keep int) int {
	if f.keys[i].reasons != 0 {
		return keep
	}
	f.dropped++
	last := len(f.keys) - 1
	f.hashes[i] = f.hashes[last]
	f.keys[i], f.keys[last] = f.keys[last], f.keys[i] // the name's memory is used again
	f.hashes, f.keys = f.hashes[:last], f.keys[:last]
	if keep == last {
		return i
	}
	return keep
}

// trim removes records that have lost their last reason when they left a sample.
func (f *followed) trim() {
	if !f.orphaned {
		return
	}
	f.orphaned = false
	for i := len(f.keys) - 1; i >= 0; i-- {
		if f.keys[i].reasons == 0 {
			f.drop(i, 0)
		}
	}
}

// forget removes keys without an arrival since a time, and weighs what is older than an epoch half.
func (f *followed) forget(now, since int64) {
	for i := len(f.keys) - 1; i >= 0; i-- {
		k := &f.keys[i]
		if k.last < since {
			for n, reason := range [...]uint8{ofAll, ofDenied, mostHeld, mostEdges} {
				if k.reasons&reason != 0 {
					f.count[n]--
				}
			}
			k.reasons = 0
			f.drop(i, 0)
			continue
		}
		k.age(now)
	}
	if f.count[0] < f.sizes.all {
		f.allBelow = math.MaxUint64
	}
	if f.count[1] < f.sizes.denied {
		f.deniedBelow = math.MaxUint64
	}
}

// age halves counts and the time that they cover, so that rates and ratios stay.
func (k *record) age(now int64) {
	k.first = now - (now-k.first)/2
	k.active /= 2
	k.cost /= 2
	k.hot /= 2
	k.hotCost /= 2
	for i := range k.promises {
		k.promises[i].time /= 2
		k.promises[i].prompt /= 2
	}
	for _, n := range [...]*uint32{
		&k.held, &k.heldErr, &k.edges, &k.arrivals, &k.denied, &k.early, &k.waited, &k.pairs, &k.even, &k.episodes,
		&k.recovered, &k.full, &k.doubled,
	} {
		*n /= 2
	}
	k.use = [2]int64{0, k.use[0]}
	k.need = [2][rungs]int64{{}, k.need[0]}
}

// arrive records a decision.
func (k *record) arrive(l *ladder, d *decision) {
	retry := false
	if k.arrivals > 0 {
		retry = k.wait(l, d.now, d.cost)
	}
	k.last = max(k.last, d.now)
	k.arrivals++
	k.cost += d.cost
	k.use[0] = max(k.use[0], d.use)
	if !retry && k.reasons&inSample != 0 {
		k.measure(l, d.now-k.patience, d.cost)
	}
	if d.denied {
		k.deny(d)
	} else {
		k.retryAt = 0
		if k.inEpisode {
			k.inEpisode = false
			if d.now <= k.recoverBy {
				k.recovered++
			}
		}
	}
	if l.window > 0 && d.granted > 0 {
		k.spend(l, d)
	}
}

// measure lets the rungs decide about a request, at the time at which it would have come if nothing had been denied. Without
// that, the demand of clients that wait would seem to be no more than the limit.
func (k *record) measure(l *ladder, now, cost int64) {
	for n := range l.rungs {
		if r := &l.rungs[n]; r.params != nil {
			k.need[0][n] = max(k.need[0][n], r.take(&k.counters[n], now, cost))
		}
	}
}

// wait records the time since the last arrival, and whether a retry was early. It reports whether this request is taken for the
// retry of a denied one, after its RetryAfter: that of a key which usually waits.
func (k *record) wait(l *ladder, now, cost int64) (retry bool) {
	gap := max(0, now-k.last)
	k.active += min(gap, pauseTime*l.length)
	if k.denied > 0 && now-k.lastDenied < pauseTime*l.length {
		k.hot += gap
		k.hotCost += cost
	}
	if gap > 0 {
		if k.gap > 0 {
			k.pairs++
			if 4*gap <= 5*k.gap && 4*k.gap <= 5*gap {
				k.even++
			}
		}
		k.gap = gap
	}
	if k.retryAt != 0 {
		if now < k.retryAt {
			k.early++
		} else {
			k.waited++
			if retry = k.waited >= 4*k.early; retry {
				k.patience += gap
			}
		}
	}
	for i := range k.promises {
		k.promises[i].arrive(now)
	}
	return retry
}

// promise measures whether requests come when a RetryAfter ends. It follows one RetryAfter at a time: the first that is given
// when none is pending. Requests are prompt for an eighth of its length after its end.
type promise struct {
	ends, until int64 // 0: none is pending
	time        int64 // total length of all prompt times, µs
	prompt      uint32
}

// minPrompt is the shortest prompt time: networks and schedulers are not more exact. In microseconds.
const minPrompt = 10_000

func (p *promise) give(now, wait int64) {
	if p.ends == 0 {
		eighth := max(wait/8, minPrompt)
		p.ends, p.until = now+wait, now+wait+eighth
		p.time += eighth
	}
}

func (p *promise) arrive(now int64) {
	switch {
	case p.ends == 0 || now < p.ends:
	case now <= p.until:
		p.prompt++
	default:
		p.ends = 0
	}
}

func (k *record) deny(d *decision) {
	k.denied++
	k.lastDenied = d.now
	k.retryAt = d.now + max(d.retryAfter, 1)
	k.promises[0].give(d.now, d.retryAfter)
	k.promises[1].give(d.now, (d.retryAfter+second-1)/second*second)
	if !k.inEpisode {
		k.inEpisode = true
		k.episodes++
		k.recoverBy = d.now + 2*d.retryAfter
	}
}

// spend counts the granted cost by halves of fixed windows. A window that is used up around its beginning, after the end of
// the one before was, is doubled.
func (k *record) spend(l *ladder, d *decision) {
	end := d.now + d.resetAfter
	if ahead := end - k.windowEnd; ahead > l.window/4 { // smaller differences are those of clocks
		if 10*(k.before+k.head) >= 14*l.max {
			k.doubled++
		}
		if 10*(k.head+k.tail) >= 7*l.max {
			k.full++
		}
		k.before = 0
		if ahead < l.window+l.window/4 {
			k.before = k.tail
		}
		k.head, k.tail = 0, 0
		k.windowEnd = end
	}
	if d.resetAfter > l.window/2 {
		k.head += d.granted
	} else {
		k.tail += d.granted
	}
}
