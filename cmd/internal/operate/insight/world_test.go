package insight_test

import (
	"container/heap"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/insight"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

func parse(t testing.TB, text string) *rules.Set {
	t.Helper()
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "r.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	set, err := rules.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// world is a limiter with a recorder on a virtual clock, and the clients that call it.
type world struct {
	now      time.Time
	begin    time.Time
	set      *rules.Set
	rule     *sluice.Rule
	limiter  *sluice.Limiter
	recorder *insight.Recorder
	rnd      *rand.Rand
	clients  clients
	requests int
	refused  map[string]bool // denied keys
	takes    [1]sluice.Take
	out      [1]sluice.Decision
}

func newWorld(t testing.TB, seed uint64, text string) *world {
	t.Helper()
	w := &world{refused: map[string]bool{}, begin: time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC), set: parse(t, text), rnd: rand.New(rand.NewPCG(seed, 7))}
	w.now = w.begin.Add(time.Duration(w.rnd.Int64N(int64(time.Hour)))).Truncate(time.Microsecond)
	w.begin = w.now
	clock := func() time.Time { return w.now }
	store, err := memstore.Open(memstore.Config{Now: clock, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	w.recorder = insight.New(insight.Config{Rules: func() *rules.Set { return w.set }, Now: clock}).Repeatable()
	w.rule = w.set.LimiterRules()[0]
	if w.limiter, err = sluice.NewWithRules(store, nil, sluice.WithEvents(w.recorder.Events())); err != nil {
		t.Fatal(err)
	}
	return w
}

// client sends requests. next returns the time until its next request after a decision, or a negative one at its end. The
// first call has no decision.
type client struct {
	key  string
	at   time.Time
	next func(w *world, d *sluice.Decision) time.Duration
}

type clients []*client

func (c clients) Len() int           { return len(c) }
func (c clients) Less(i, j int) bool { return c[i].at.Before(c[j].at) }
func (c clients) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *clients) Push(x any)        { *c = append(*c, x.(*client)) }
func (c *clients) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

func (w *world) add(key string, after time.Duration, next func(*world, *sluice.Decision) time.Duration) {
	c := &client{key: key, next: next, at: w.begin.Add(after)}
	if first := next(w, nil); first >= 0 {
		c.at = c.at.Add(first)
		heap.Push(&w.clients, c)
	}
}

// run lets the clients call the limiter for a time.
func (w *world) run(t testing.TB, d time.Duration) {
	t.Helper()
	end := w.begin.Add(d)
	for len(w.clients) > 0 {
		c := w.clients[0]
		if c.at.After(end) {
			break
		}
		if c.at.After(w.now) {
			w.now = c.at
		}
		gap := c.next(w, w.call(t, c.key))
		if gap < 0 {
			heap.Pop(&w.clients)
			continue
		}
		c.at = w.now.Add(gap)
		heap.Fix(&w.clients, 0)
	}
	w.now = end
}

// call sends one request.
func (w *world) call(t testing.TB, key string) *sluice.Decision {
	t.Helper()
	w.takes[0] = sluice.Take{Rule: w.rule, Key: key, Cost: 1}
	if _, err := w.limiter.Decide(context.Background(), w.takes[:], w.out[:]); err != nil {
		t.Fatal(err)
	}
	w.requests++
	if !w.out[0].Allowed {
		w.refused[key] = true
	}
	return &w.out[0]
}

// between draws from a range, logarithmically.
func (w *world) between(from, to float64) float64 {
	return from * math.Pow(to/from, w.rnd.Float64())
}

func (w *world) random(mean time.Duration) time.Duration {
	return time.Duration(float64(mean) * w.rnd.ExpFloat64())
}

func rule(limit string) string {
	return fmt.Sprintf("rules:\n  - {name: r, limit: %s, per: ip}\n", limit)
}
