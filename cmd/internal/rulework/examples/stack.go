package examples

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// stack is a limiter with an empty store on a virtual clock, and its HTTP handlers.
type stack struct {
	set     func() *rules.Set
	limiter *sluice.Limiter
	now     time.Time
}

func newStack(set *rules.Set) (*stack, error) {
	s := &stack{set: func() *rules.Set { return set }, now: start}
	store, err := memstore.Open(memstore.Config{Now: func() time.Time { return s.now }})
	if err != nil {
		return nil, err
	}
	s.limiter, err = sluice.NewWithRules(store, nil)
	return s, err
}

// ok is the application.
var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// middleware returns the middleware in front of an application.
func (s *stack) middleware(app http.Handler) http.Handler {
	return httplimit.RulesMiddleware(s.limiter, s.set)(app)
}

// send sends the request to a handler and returns its response.
func (x *recording) send(ctx context.Context, h http.Handler) (*recorder, error) {
	r, err := x.http.Request()
	if err != nil {
		return nil, err
	}
	inner, cancel := context.WithCancel(r.Context()) // it has the request's claims
	defer context.AfterFunc(ctx, cancel)()
	defer cancel()
	w := newRecorder()
	h.ServeHTTP(w, r.WithContext(inner))
	return w, nil
}

// over sends a request over the limit, after as many requests as the limit allows at one moment.
func (x *recording) over(s *stack) (*recorder, error) {
	rate, concurrent := x.room()
	switch {
	case x.isDelayed():
		return x.overDelayed(s, rate)
	case concurrent >= 0 && (rate < 0 || concurrent <= rate):
		return x.overConcurrent(s, int(concurrent))
	}
	if err := s.spend(x.own(), rate); err != nil {
		return nil, err
	}
	return x.send(context.Background(), s.middleware(ok))
}

// room returns the number of requests of a new key that the rule's rates and concurrency limits allow at one moment; -1
// if it has none.
func (x *recording) room() (rate, concurrent int64) {
	rate, concurrent = -1, -1
	own := x.own()
	for i := range own {
		t := &own[i]
		limit := t.EffectiveLimit()
		units := limit.Max()
		if limit.Initial != 0 {
			units = max(0, limit.Initial)
		}
		switch n := units / t.Cost; {
		case t.Rule.Shadow:
		case limit.Algorithm == sluice.Concurrency && (concurrent < 0 || n < concurrent):
			concurrent = n
		case limit.Algorithm != sluice.Concurrency && (rate < 0 || n < rate):
			rate = n
		}
	}
	return rate, concurrent
}

// spend charges n requests at once.
func (s *stack) spend(takes []sluice.Take, n int64) error {
	var rates []sluice.Take
	for _, t := range takes {
		if t.EffectiveLimit().Algorithm != sluice.Concurrency {
			t.Cost, t.MaxDelay = t.Cost*n, 0
			rates = append(rates, t)
		}
	}
	if n <= 0 || len(rates) == 0 {
		return nil
	}
	allowed, err := s.limiter.Decide(context.Background(), rates, make([]sluice.Decision, len(rates)))
	if err == nil && !allowed {
		err = fmt.Errorf("%d requests at the same moment are denied", n)
	}
	return err
}

// overConcurrent sends each request while the previous one is served.
func (x *recording) overConcurrent(s *stack, n int) (*recorder, error) {
	var h http.Handler
	var last *recorder
	var err error
	h = s.middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if n--; n >= 0 && err == nil {
			var w *recorder
			if w, err = x.send(context.Background(), h); last == nil {
				last = w
			}
		}
	}))
	_, sendErr := x.send(context.Background(), h)
	if err == nil {
		err = sendErr
	}
	return last, err
}

// maxWaiting is the maximum number of delayed requests for an example of a full delay queue.
const maxWaiting = 1000

// maxRecording is the maximum time to wait for a response that should come at once.
const maxRecording = 5 * time.Second

// overDelayed fills a delay queue until a request is denied.
func (x *recording) overDelayed(s *stack, rate int64) (*recorder, error) {
	limit, delay := x.delay()
	places := limit.Max()
	if delay > 0 {
		places = min(places, int64(delay/(limit.Window/time.Duration(limit.Count)))+1)
	}
	if limit.Algorithm != sluice.LeakyQueue {
		places = int64(delay/(limit.Window/time.Duration(limit.Count))) + 1
		if err := s.spend(x.own(), rate); err != nil {
			return nil, err
		}
	}
	if places > maxWaiting {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	h := s.middleware(ok)
	denied := make(chan *recorder, places+2)
	failed := make(chan error, places+2)
	for range places + 2 { // one is served, the others are delayed or denied
		group.Go(func() {
			if w, err := x.send(ctx, h); err != nil {
				failed <- err
			} else if x.isDenial(w.status) {
				denied <- w
			}
		})
	}
	select {
	case w := <-denied:
		return w, nil
	case err := <-failed:
		return nil, err
	case <-time.After(maxRecording):
		return nil, nil
	}
}

// delayed sends a request that is delayed for as long as its cost takes at the rule's rate.
func (x *recording) delayed(s *stack) (*recorder, error) {
	limit, _ := x.delay()
	n, _ := x.room()
	if limit.Algorithm == sluice.LeakyQueue {
		n = 1
	}
	if err := s.spend(x.own(), n); err != nil {
		return nil, err
	}
	wait := limit.Window / time.Duration(limit.Count) * time.Duration(x.own()[0].Cost)
	s.now = s.now.Add(wait)
	w, err := x.send(context.Background(), s.middleware(ok))
	if err == nil {
		quota.SetDelay(w.header, wait)
	}
	return w, err
}

// delay returns the rule's first limit that delays the request, and the maximum delay; nil if none does.
func (x *recording) delay() (*sluice.Limit, time.Duration) {
	own := x.own()
	for i := range own {
		t := &own[i]
		if l := t.EffectiveLimit(); !t.Rule.Shadow && (l.Algorithm == sluice.LeakyQueue || t.MaxDelay > 0) {
			return l, t.MaxDelay
		}
	}
	return nil, 0
}

func (x *recording) isDelayed() bool {
	l, _ := x.delay()
	return l != nil
}

// queued sends a request to a gateway with a queue. A rule that matches claims does not match it, because a gateway
// reads claims from tokens.
func (x *recording) queued(s *stack) (*recorder, error) {
	all, err := match.ParsePattern("/**", false)
	if err != nil {
		return nil, err
	}
	g, err := gateway.New(gateway.Config{
		Routes: []gateway.Route{{Name: "example", Path: all, Upstream: ok}}, Rules: s.set, Limiter: s.limiter,
		Queue: acceptAll{}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	bare := *x.http
	bare.Claims, bare.Attributes = nil, nil
	y := &recording{set: x.set, http: &bare, rule: x.rule}
	r, err := bare.Request()
	if err != nil {
		return nil, err
	}
	if err := x.set.Match(httplimit.NewRulesRequest(r, x.set), &y.matched); err != nil {
		return nil, err
	}
	rate, _ := y.room()
	if err := s.spend(y.own(), rate); err != nil {
		return nil, err
	}
	return y.send(context.Background(), g)
}

// acceptAll is a queue that stores nothing.
type acceptAll struct{}

const exampleID = "5e1f7c0a9b8d4e6f9a3b2c1d0e9f8a7b"

// Put returns an ID.
func (acceptAll) Put(context.Context, queue.Item) (string, error) { return exampleID, nil }

// HasPending reports whether items are pending; there are none.
func (acceptAll) HasPending(string, string) bool { return false }

// MaxItem returns the maximum size of an item.
func (acceptAll) MaxItem() int { return 1 << 20 }

// Next blocks until ctx is done.
func (acceptAll) Next(ctx context.Context) (*queue.Delivery, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// unavailable sends a request while the store is unavailable.
func (x *recording) unavailable(s *stack) (w *recorder, err error) {
	if s.limiter, err = sluice.NewWithRules(downStore{}, nil); err != nil {
		return nil, err
	}
	return x.send(context.Background(), s.middleware(ok))
}

func failsClosed(t sluice.Take) bool { return t.Rule.OnFailure == sluice.FailClosed && !t.Rule.Shadow }

// downStore is a store whose only shard is unavailable.
type downStore struct{}

// Apply fails.
func (downStore) Apply(context.Context, []sluice.Take, []sluice.Decision) error {
	return sluice.ErrUnavailable
}

// Shards returns 1.
func (downStore) Shards() int { return 1 }

// Shard returns the index of the only shard.
func (downStore) Shard(*sluice.Take) int { return 0 }
