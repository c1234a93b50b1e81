package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/step"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// algorithm is a list of limits of one kind. A rule changes between the limits of one list. Their shapes differ
// wherever their meanings do.
type algorithm struct {
	name   string
	limits []sluice.Limit
}

var algorithms = []algorithm{
	{"token_bucket", []sluice.Limit{
		sluice.PerMinute(100), sluice.PerSecond(10), sluice.PerMinute(7), sluice.Per(3, time.Second).WithBurst(11),
		sluice.Per(7, 1_000_003*time.Microsecond), sluice.Per(99_991, time.Hour), sluice.Per(1, 366*24*time.Hour),
		sluice.PerSecond(10_000_000), sluice.Per(10_000_019, 7*time.Second).WithBurst(1 << 40),
		sluice.Per(10_000, time.Millisecond),
	}},
	{"leaky_queue", []sluice.Limit{
		sluice.PerMinute(100).WithAlgorithm(sluice.LeakyQueue), sluice.PerSecond(7).WithAlgorithm(sluice.LeakyQueue).WithBurst(30),
		sluice.PerSecond(3).WithAlgorithm(sluice.LeakyQueue), sluice.Per(99_991, time.Hour).WithAlgorithm(sluice.LeakyQueue),
	}},
	{"initial_bucket", []sluice.Limit{
		sluice.PerMinute(100).WithInitial(10), sluice.PerSecond(10).WithInitial(0), sluice.PerMinute(7).WithInitial(6),
		sluice.Per(3, time.Second).WithBurst(11).WithInitial(1), sluice.PerDay(5).WithInitial(2),
		sluice.Per(7, 1_000_003*time.Microsecond).WithInitial(3), sluice.Per(99_991, time.Hour).WithInitial(0),
		sluice.Per(1, 366*24*time.Hour).WithInitial(0), sluice.PerSecond(10_000_000).WithInitial(9_999_999),
		sluice.Per(10_000_019, 7*time.Second).WithBurst(1 << 40).WithInitial(1 << 39), sluice.Per(10_000, time.Millisecond).WithInitial(1),
		sluice.PerMinute(100).WithInitial(90), // equivalent to the first
	}},
	{"initial_and_others", []sluice.Limit{
		sluice.PerMinute(100).WithInitial(10), sluice.PerSecond(10), sluice.PerMinute(7).WithInitial(0), sluice.PerMinute(100),
		sluice.PerMinute(9).WithAlgorithm(sluice.FixedWindow), sluice.PerHour(30).WithBurst(11).WithInitial(3),
		sluice.PerMinute(9).WithAlgorithm(sluice.SlidingWindowLog), sluice.PerSecond(7).WithAlgorithm(sluice.LeakyQueue).WithBurst(30),
		{Count: 10, Window: time.Minute, Refill: sluice.RefillInterval},
		sluice.Concurrent(9).WithPermitTTL(time.Second),
	}},
	{"interval_bucket", []sluice.Limit{
		{Count: 10, Window: time.Minute, Refill: sluice.RefillInterval},
		{Count: 3, Window: time.Second, Burst: 20, Refill: sluice.RefillInterval, Align: sluice.AlignFirstRequest},
		{Count: 10_000, Window: time.Millisecond, Burst: 31_000_000_000_000_000, Refill: sluice.RefillInterval},
		{Count: 1, Window: 7 * time.Millisecond, Burst: 5, Refill: sluice.RefillInterval},
		{Count: 500, Window: time.Minute, Burst: 4000, Refill: sluice.RefillInterval},
	}},
	{"fixed_window", []sluice.Limit{
		sluice.PerSecond(20).WithAlgorithm(sluice.FixedWindow), sluice.PerMinute(5).WithAlgorithm(sluice.FixedWindow),
		sluice.Per(7, 500*time.Millisecond).WithAlgorithm(sluice.FixedWindow),
		sluice.PerHour(step.MaxWindowCount).WithAlgorithm(sluice.FixedWindow),
		sluice.Per(9, time.Hour).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest),
		sluice.PerMinute(5).WithAlgorithm(sluice.FixedWindow).WithSoftExcess(3, 7*time.Second),
		sluice.Per(0, time.Second).WithAlgorithm(sluice.FixedWindow),
		sluice.PerCalendar(12, sluice.CalendarDay, nil), sluice.PerDay(10_000_000).WithAlgorithm(sluice.FixedWindow),
	}},
	{"sliding_counter", []sluice.Limit{
		sluice.PerSecond(20).WithAlgorithm(sluice.SlidingWindowCounter), sluice.PerMinute(9).WithAlgorithm(sluice.SlidingWindowCounter),
		{Count: 13, Window: 7 * time.Second, Algorithm: sluice.SlidingWindowCounter, Rounding: sluice.RoundNearest},
		sluice.Per(step.MaxWindowCount, 366*24*time.Hour).WithAlgorithm(sluice.SlidingWindowCounter),
	}},
	{"sub_windows", []sluice.Limit{
		{Count: 20, Window: time.Second, Algorithm: sluice.SlidingWindowCounter, SubWindows: 5},
		{Count: 9, Window: time.Minute, Algorithm: sluice.SlidingWindowCounter, SubWindows: 5},
		{Count: step.MaxWindowCount, Window: 365 * 24 * time.Hour, Algorithm: sluice.SlidingWindowCounter, SubWindows: 5},
		{Count: 13, Window: 7 * time.Second, Algorithm: sluice.SlidingWindowCounter, Rounding: sluice.RoundNearest, SubWindows: 5},
	}},
	{"sliding_log", []sluice.Limit{
		sluice.PerSecond(20).WithAlgorithm(sluice.SlidingWindowLog), sluice.PerMinute(9).WithAlgorithm(sluice.SlidingWindowLog),
		sluice.Per(200, 7*time.Second).WithAlgorithm(sluice.SlidingWindowLog), sluice.PerHour(step.MaxLogCount).WithAlgorithm(sluice.SlidingWindowLog),
	}},
	{"concurrency", []sluice.Limit{
		sluice.Concurrent(20), sluice.Concurrent(9).WithPermitTTL(time.Second), sluice.Concurrent(3).WithPermitTTL(20 * time.Millisecond),
		sluice.Concurrent(40).WithPermitTTL(time.Hour),
	}},
}

// TestLuaEqualsGo sends random calls, in batches of a thousand and each at its own time, to the script and to the Go
// implementation, which does not see the states of the script. All answers and all states must be equal.
func TestLuaEqualsGo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			rounds := 16
			if os.Getenv("SLUICE_SOAK") != "" {
				rounds = 10_000
			}
			d := newDifferential(t, server, a.limits)
			for range rounds {
				if t.Failed() {
					return
				}
				d.pace = private.ParamsOf(d.limits[d.rng.IntN(len(d.limits))]).Length
				d.round(1000)
				for range 5 { // with more hints than calls
					d.round(10)
				}
			}
			t.Logf("%d takes, %d allowed, %d denied, %d adjusted, %d replayed; %d of %d hints applied",
				d.takes, d.allowed, d.denied, d.adjusted, d.replayed, d.useful, d.hinted)
			t.Logf("%d settled, %d of them refunded, %d partly forgiven; %d states with marks, %d with the maximum",
				d.reserved, d.refunded, d.forgiven, d.marked, d.most)
			t.Logf("%d states of other limit parameters, %d of them unknown, %d with marks", d.changed, d.unknown, d.scaled)
			if a.name != "sliding_log" && a.name != "concurrency" && (d.useful < d.hinted/10 || d.hinted < 20*rounds) {
				t.Error("too few hints applied")
			}
			if d.allowed < d.takes/10 || d.denied < d.takes/50 || d.adjusted < d.takes/100 || d.replayed < d.takes/2000 {
				t.Error("the calls are not diverse enough")
			}
		})
	}
}

// TestMarksEqualGo is TestLuaEqualsGo for a few keys with many open reservations.
func TestMarksEqualGo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, a := range algorithms {
		if a.name != "token_bucket" && a.name != "interval_bucket" && a.name != "initial_bucket" {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			rounds := 140
			if os.Getenv("SLUICE_SOAK") != "" {
				rounds = 50_000
			}
			limits := slices.Clone(a.limits)
			if a.name == "token_bucket" { // a rule may change to it, and it has no marks
				limits = append(limits, sluice.PerMinute(100).WithAlgorithm(sluice.LeakyQueue))
			}
			if a.name == "initial_bucket" { // nearly full ones, because otherwise the first takes of each key would all be denied
				for i := range limits {
					burst := limits[i].Max()
					limits[i] = limits[i].WithInitial(burst - burst/10 - 1)
				}
			}
			d := newDifferential(t, server, limits)
			d.marks = true
			for range rounds {
				if t.Failed() {
					return
				}
				p := private.ParamsOf(d.limits[d.rounds/12%len(d.limits)])
				d.pace = min(p.Length*(p.Burst/p.Count+1)/300+1, step.Year)
				d.round(60)
			}
			t.Logf("%d takes, %d allowed, %d denied, %d settled, %d of them refunded, %d partly forgiven; %d states with marks, %d with the maximum",
				d.takes, d.allowed, d.denied, d.reserved, d.refunded, d.forgiven, d.marked, d.most)
			t.Logf("%d states of other limit parameters, %d of them unknown, %d with marks", d.changed, d.unknown, d.scaled)
			if d.refunded < d.takes/50 || d.denied < d.takes/50 || d.forgiven < 20 || d.most < 10 {
				t.Error("the calls are not diverse enough")
			}
		})
	}
}

// TestChangedEqualsGo is TestLuaEqualsGo for rules whose limit parameters change all the time, among many of all sizes,
// two thirds of which are known to the script's caller.
func TestChangedEqualsGo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	plain := algorithm{"token_bucket_plain", algorithms[0].limits}
	for _, a := range append(slices.Clone(algorithms), plain) {
		if a.name == "fixed_window" || a.name == "sliding_log" || a.name == "concurrency" || a.name == "initial_and_others" { // which keep their count under any parameters
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			rounds := 240
			if os.Getenv("SLUICE_SOAK") != "" {
				rounds = 100_000
			}
			rng := rand.New(rand.NewPCG(3, 4))
			if os.Getenv("SLUICE_SOAK") != "" {
				rng = rand.New(rand.NewPCG(rand.Uint64(), 4))
			}
			limits := append(slices.Clone(a.limits), drawnLimits(rng, *sluice.Must(a.limits[0].Build()), 12)...)
			rng.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
			d := newDifferential(t, server, limits)
			d.restless, d.plain = true, a.name == plain.name
			for range rounds {
				if t.Failed() {
					return
				}
				p := private.ParamsOf(d.current())
				d.pace = max(1000, min(p.Length, step.Year)/(1<<d.rng.IntN(8)))
				if d.plain {
					d.round(1)
				}
				d.round(6)
			}
			t.Logf("%d takes, %d allowed, %d denied, %d adjusted, %d refunded; %d states of other limit parameters, %d of them unknown, %d with marks",
				d.takes, d.allowed, d.denied, d.adjusted, d.refunded, d.changed, d.unknown, d.scaled)
			marks := a.name == "token_bucket" || a.name == "interval_bucket" || a.name == "initial_bucket"
			if d.changed < rounds/3 || d.unknown < d.changed/10 || d.unknown > d.changed/2 || marks && d.scaled < d.changed/20 ||
				d.allowed < d.takes/10 || d.denied < d.takes/20 {
				t.Error("the calls are not diverse enough")
			}
		})
	}
}

// TestShortWayEqualsGo is TestLuaEqualsGo for single fast takes, for which the script has a fast path. They all happen
// at the time of their call.
func TestShortWayEqualsGo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	large := algorithm{"large_window", []sluice.Limit{sluice.PerSecond(step.MaxWindowCount).WithAlgorithm(sluice.FixedWindow)}}
	for _, a := range append(slices.Clone(algorithms), large) {
		if a.name != "token_bucket" && a.name != "fixed_window" && a.name != large.name {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			rounds := 50
			if os.Getenv("SLUICE_SOAK") != "" {
				rounds = 50_000
			}
			d := newDifferential(t, server, a.limits)
			d.plain = true
			for range rounds {
				if t.Failed() {
					return
				}
				d.pace = private.ParamsOf(d.limits[d.rng.IntN(len(d.limits))]).Length
				d.round(1 + d.rng.IntN(200))
				for range 20 { // one at a time, which is a separate path
					d.round(1)
				}
			}
			t.Logf("%d takes, %d allowed, %d denied; %d of %d hints applied; %d states of other limit parameters, %d of them unknown",
				d.takes, d.allowed, d.denied, d.useful, d.hinted, d.changed, d.unknown)
			if d.useful < d.hinted/10 || d.hinted < 3*rounds {
				t.Error("too few hints applied")
			}
			if d.allowed < d.takes/10 || d.denied < d.takes/50 {
				t.Error("the calls are not diverse enough")
			}
		})
	}
}

type differential struct {
	t      *testing.T
	rng    *rand.Rand
	server *redistest.Server
	store  *Store
	limits []*sluice.Limit
	rules  []*sluice.Rule
	now    int64
	pace   int64 // scale of time steps: a window
	plain  bool
	marks  bool // few keys with many reservations

	restless bool // limit parameters change all the time

	cells  map[string]*cell // states of the Go implementation, by stored key
	ids    map[string]idempotencyRecord
	made   []sluice.Take // takes that can be settled
	aims   []int64       // times at which an answer changes
	rounds int

	runID string

	takes, allowed, denied, adjusted, replayed, hinted, useful int

	reserved, refunded, forgiven int // settled takes, those with a refund, and those above the cap
	marked, most                 int // states with marks, and with the maximum number of them
	changed, unknown, scaled     int // states of other parameters, of unknown ones, and of known ones with marks
}

func newDifferential(t *testing.T, server *redistest.Server, limits []sluice.Limit) *differential {
	seed := uint64(1)
	if os.Getenv("SLUICE_SOAK") != "" {
		seed = rand.Uint64()
	}
	t.Log("seed", seed)
	d := &differential{
		t: t, rng: rand.New(rand.NewPCG(seed, 2)), server: server,
		now: firstTime, cells: map[string]*cell{}, ids: map[string]idempotencyRecord{}, runID: runID(server.Do),
	}
	client := dialServer(t, server) // with a longer timeout than the store's own
	d.store = sluice.Must(Open(Config{
		Client: client, KeyPrefix: t.Name() + ":", Now: func() time.Time { return time.UnixMicro(d.now) },
	}))
	for _, l := range limits {
		d.limits = append(d.limits, sluice.Must(l.Build()))
	}
	d.store.records.vain = map[group.RuleID]time.Time{}
	for i := range 4 { // all combinations of shadow and ChargeDenied
		d.rules = append(d.rules, sluice.Must(sluice.NewRule(sluice.Rule{
			Name: fmt.Sprint("r", i), Limit: sluice.PerSecond(1), Shadow: i&1 != 0, ChargeDenied: i&2 != 0,
		})))
		// The known parameters stay as they are, because records are never read.
		d.store.records.vain[private.RuleOf(d.rules[i]).ID] = time.Now().Add(24 * time.Hour)
		for j, l := range d.limits {
			if j%3 != i%3 { // the others are known only if they are part of the call
				d.store.registry.Known(private.RuleOf(d.rules[i]).ID).Learn(private.ParamsOf(l).Numbers())
			}
		}
	}
	return d
}

// round sends groups of one to three takes until there are n takes.
func (d *differential) round(n int) {
	c := emptyCall(&idleRuns)
	defer c.recycle(&idleRuns)
	plain := d.plain && d.rng.IntN(8) > 0 // other takes leave marks, which the fast path does not handle
	d.advance()
	for len(c.ops) < n {
		group := make([]sluice.Take, min(n, 1+max(0, d.rng.IntN(6)-3)))
		if !plain {
			d.advance()
		}
		for i := range group {
			if plain {
				group[i] = d.plainTake()
			} else {
				group[i] = d.take()
			}
			if d.plain && group[i].Receipt == 0 {
				group[i].Key += fmt.Sprint("/", i) // all keys of a group are different
			}
		}
		d.add(c, group...)
	}
	c.allFast = plain
	// Sometimes the server has lost the script.
	if d.rounds++; d.rounds%10 == 0 && (!plain || d.rounds%100 == 0) {
		if _, err := d.server.Do("SCRIPT", "FLUSH"); err != nil {
			d.t.Fatal(err)
		}
	}
	c.place()
	c.tell(&d.store.registry)
	useful := d.hint(c, plain)
	if !c.mixed && d.rng.IntN(8) > 0 { // like a process that expects no change
		c.told = nil
	}
	r, err := d.store.sendAgain(context.Background(), c, d.now)
	if err != nil {
		d.t.Fatal(err)
	}
	if r.told != c.asks || r.told && r.server != d.runID || r.restored != useful {
		d.t.Fatalf("the script applied %d hints of %d, want %d; run ID %q, want %q",
			r.restored, len(c.hints), useful, r.server, d.runID)
	}
	d.compareStates(c)
	want := d.model(c)
	if err := c.replay(r); err != nil {
		d.t.Fatal(err)
	}
	d.compare(c, c.answers, want)
	if d.rounds%30 != 0 && d.plain {
		return
	}
	d.checkExpiry()
	if d.rounds%30 == 0 { // to bound memory in a long run
		if _, err := d.server.Do("FLUSHALL"); err != nil {
			d.t.Fatal(err)
		}
		clear(d.cells)
		clear(d.ids)
		d.made, d.aims = nil, nil
		d.elsewhere()
	}
}

// checkExpiry fails if a key has no TTL.
func (d *differential) checkExpiry() {
	left, err := d.server.Do("EVAL", `
		local left = {}
		for _, key in ipairs(redis.call('KEYS', '*')) do
			if redis.call('PTTL', key) <= 0 then
				left[#left + 1] = key
			end
		end
		return left`, "0")
	if err != nil || left != "" {
		d.t.Fatalf("keys without a TTL: %q, %v", left, err)
	}
}

func (d *differential) add(c *call, group ...sluice.Take) {
	ops, err := opsOf(group)
	if err != nil {
		d.t.Fatal(err)
	}
	g, err := newCall(&d.store.names, d.store.recorded.Load(), ops)
	if err != nil {
		d.t.Fatal(err)
	}
	c.join(g)
	g.recycle(&idleCalls)
	for i := range group {
		c.ops[len(c.ops)-1-i].time = d.now
	}
}

// compareStates compares the states that the script found with those of the Go implementation.
func (d *differential) compareStates(c *call) {
	for i := range c.cells {
		got, want := &c.cells[i], d.cells[c.keys[2*i]]
		if want == nil {
			want = &cell{}
			d.cells[c.keys[2*i]] = want
		}
		want.kind = got.kind
		p := c.paramsOf(i)
		if p.Kind >= step.Log {
			if want.words == nil {
				want.words = make([]uint64, step.MaxLogCount+1)
			}
			continue
		}
		g, w := got.state, want.state
		same := g == w && slices.Equal(got.wideWords(), want.wideWords())
		if p.Kind <= step.Interval && len(got.words) > 0 {
			d.marked++
			if g.Shape != p.Shape() && g.ExpiresAt > c.firstTime(i) && c.knownOf(i).Finds(p, g.Shape) {
				d.scaled++
			}
			if got.words[1] == step.MaxMarks {
				d.most++
			}
		}
		if g.Shape != p.Shape() && g.ExpiresAt > c.firstTime(i) && p.Kind != step.Window {
			if d.changed++; !c.knownOf(i).Finds(p, g.Shape) {
				d.unknown++
			}
		}
		if g.ExpiresAt != w.ExpiresAt || g.ExpiresAt != 0 && !same {
			d.t.Fatalf("%s: the script stored %+v, want %+v", c.keys[2*i], *got, *want)
		}
	}
	for i := range c.ids {
		if got, want := c.ids[i], d.ids[c.keys[2*len(c.cells)+i]]; got != want {
			d.t.Fatalf("%s: the script stored the ID %+v, want %+v", c.keys[2*len(c.cells)+i], got, want)
		}
	}
}

// wideWords returns the words that are in use.
func (c *cell) wideWords() []uint64 {
	if c.kind <= step.Interval && len(c.words) > 0 {
		return c.words[:2+3*c.words[1]]
	}
	return c.words
}

func (c *call) paramsOf(cell int) *step.Params { return c.firstOf(cell).Params }

func (c *call) knownOf(cell int) *step.Known { return c.firstOf(cell).Request.Known }

// firstOf returns the first take on a cell.
func (c *call) firstOf(cell int) *op {
	for i := range c.ops {
		if c.ops[i].cell == cell {
			return &c.ops[i]
		}
	}
	return nil
}

// model applies the call with the Go implementation, on its own states.
func (d *differential) model(c *call) []step.Answer {
	m := *c
	m.ops = append([]op(nil), c.ops...)
	m.cells = make([]cell, len(c.cells))
	m.ids = make([]idempotencyRecord, len(c.ids))
	for i := range m.cells {
		m.cells[i] = *d.cells[c.keys[2*i]]
	}
	for i := range m.ids {
		m.ids[i] = d.ids[c.keys[2*len(c.cells)+i]]
	}
	out := make([]step.Answer, len(m.ops))
	m.tasks = make([]group.Task, len(m.ops))
	for from := 0; from < len(m.ops); {
		veto, to := false, from+1
		for ; !m.ops[to-1].ends; to++ {
		}
		g := m.group(from, to, out)
		for i := from; i < to; i++ {
			o := &m.ops[i]
			m.decide(&g, i-from, o, o.time)
			veto = veto || !out[i].Allowed && !o.Shadow && o.Request.Cost != 0
		}
		for i := from; i < to; i++ {
			m.commit(&g, i-from, &m.ops[i], veto, m.ops[i].time)
		}
		from = to
	}
	for i := range m.cells {
		*d.cells[c.keys[2*i]] = m.cells[i]
	}
	for i := range m.ids {
		d.ids[c.keys[2*len(c.cells)+i]] = m.ids[i]
	}
	for i := range m.tasks {
		if m.tasks[i].Replayed {
			d.replayed++
		}
	}
	return out
}

func (d *differential) compare(c *call, got, want []step.Answer) {
	for i := range got {
		o := &c.ops[i]
		d.takes++
		switch {
		case o.At != 0:
			d.adjusted++
			if o.Request.Settles {
				d.reserved++
			}
			if o.Request.Settles && got[i].Granted < 0 {
				d.refunded++
			}
			if got[i].Granted < o.Request.Cost && o.Request.Cost > 0 {
				d.forgiven++
			}
			if o.Params.Kind == step.Permits && o.Request.Cost > 0 && got[i].Allowed { // a renewed permit has a new receipt
				d.made = append(d.made, sluice.Take{
					Rule: d.ruleOf(o), Limit: d.limitOf(o), Key: o.Key, Cost: o.Request.Cost, Receipt: got[i].At,
				})
			}
		case got[i].Allowed:
			d.allowed++
			if o.Request.Cost > 0 && got[i].Granted > 0 {
				d.made = append(d.made, sluice.Take{
					Rule: d.ruleOf(o), Limit: d.limitOf(o), Key: o.Key, Cost: got[i].Granted, Receipt: got[i].At,
					Settles: o.Request.Settles, Charged: got[i].Granted, ChargedOf: o.Params.Limit(),
				})
			}
		default:
			d.denied++
		}
		if got[i] != want[i] {
			d.t.Errorf("take %d at %d of %+v %+v:\n got %+v\nwant %+v", i, o.time, *o.Params, o.Op, got[i], want[i])
			return
		}
	}
	d.made = d.made[max(0, len(d.made)-maxMade):]
}

func (d *differential) ruleOf(o *op) *sluice.Rule {
	for _, r := range d.rules {
		if private.RuleOf(r).ID == o.Rule {
			return r
		}
	}
	return nil
}

func (d *differential) limitOf(o *op) *sluice.Limit {
	for _, l := range d.limits {
		if private.ParamsOf(l) == o.Params {
			return l
		}
	}
	return nil
}
