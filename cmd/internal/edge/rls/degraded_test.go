package rls_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// away is an unavailable remote store.
type away struct{}

func (away) Apply(context.Context, []sluice.Take, []sluice.Decision) error {
	return sluice.ErrUnavailable
}

// ask calls a service without a gRPC server.
func ask(t *testing.T, s rls.Service, text string) string {
	t.Helper()
	m, err := rlstest.Ask("d", text)
	if err != nil {
		t.Fatal(err)
	}
	var req rls.Request
	req.FromProto(m)
	var resp rls.Response
	if err := s.ShouldRateLimit(t.Context(), &req, &resp); err != nil {
		return status.Code(err).String()
	}
	return rlstest.Tell(resp.Proto())
}

// set returns a rule set with one limit of the domain d.
func set(t *testing.T, mode sluice.FailMode) *rules.Set {
	t.Helper()
	s, err := rules.New(rules.Config{Domains: []rules.Domain{{Name: "d", Descriptors: []rules.DescriptorRule{{
		Key: "k", Limits: []rules.Limit{{Limit: sluice.PerDay(1).WithAlgorithm(sluice.FixedWindow), OnFailure: mode}},
	}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStoreAway(t *testing.T) {
	for mode, want := range map[sluice.FailMode]string{
		sluice.FailLocal:  "OK: OK 1/DAY left 0, OVER_LIMIT: OVER_LIMIT 1/DAY left 0",
		sluice.FailOpen:   "OK: OK, OK: OK",
		sluice.FailClosed: "OVER_LIMIT: OVER_LIMIT 1/DAY left 0, OVER_LIMIT: OVER_LIMIT 1/DAY left 0",
	} {
		limiter, err := sluice.NewWithRules(away{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		live := set(t, mode)
		d := rls.NewDecider(limiter, func() *rules.Set { return live }, rls.Options{})
		if got := ask(t, d, "k=v") + ", " + ask(t, d, "k=v"); got != want {
			t.Errorf("fail mode %d: got %s, want %s", mode, got, want)
		}
	}
}

func TestNoRules(t *testing.T) {
	limiter, err := sluice.NewWithRules(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	d := rls.NewDecider(limiter, func() *rules.Set { return nil }, rls.Options{})
	if got := ask(t, d, "k=v"); got != codes.Unavailable.String() {
		t.Errorf("without rules the response is %s", got)
	}
}

func TestSuspendedRule(t *testing.T) {
	limiter, err := sluice.NewWithRules(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	live := set(t, sluice.FailLocal)
	limiter.Suspend("d/k")
	d := rls.NewDecider(limiter, func() *rules.Set { return live }, rls.Options{})
	for range 3 {
		if got := ask(t, d, "k=v"); got != "OK: OK" {
			t.Errorf("the response of a suspended rule is %s", got)
		}
	}
}

// While the deny cache has a denial the store is not called, and the status of other limits has no remaining quota.
func TestRememberedDenial(t *testing.T) {
	store, err := redisstore.Open(redisstore.Config{URL: redistest.Start(t).URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	d := decider(t, store, rls.Options{}, rulefile.Options{}, rulesIn(t, `
  - {key: a, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: year, requests_per_unit: 10}}
`))
	for i, step := range []rlstest.Step{
		{Ask: "a=1", Want: "OK: OK 1/YEAR left 0"},
		{Ask: "a=1 | b=1", Want: "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OK 10/YEAR left 10"},
		{Ask: "a=1 | b=1", Want: "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OK"},
	} {
		got := ask(t, d, step.Ask)
		if i == 2 && got != step.Want {
			got = ask(t, d, step.Ask) // the entry had expired after 1 s and is renewed
		}
		if got != step.Want {
			t.Errorf("step %d, %s:\ngot  %s\nwant %s", i+1, step.Ask, got, step.Want)
		}
	}
}

// A cancelled call returns Canceled, and other errors of the store return Unavailable.
func TestCallerLeaves(t *testing.T) {
	limiter, err := sluice.NewWithRules(away{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	live := set(t, sluice.FailLocal)
	d := rls.NewDecider(limiter, func() *rules.Set { return live }, rls.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req := rls.Request{Domain: "d", Descriptors: []rls.Descriptor{{Entries: []rules.Entry{{Key: "k", Value: "v"}}}}}
	err = d.ShouldRateLimit(ctx, &req, new(rls.Response))
	if code := status.Code(err); code != codes.Unavailable && code != codes.Canceled || errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// With ChargeDenied, denied descriptors are charged, and peeks show the charges.
func TestChargeDenied(t *testing.T) {
	d := decider(t, memstore.New(), rls.Options{}, rulefile.Options{ChargeDenied: true}, rulesIn(t, `
  - {key: tokens, rate_limit: {unit: year, requests_per_unit: 100}}
  - {key: q, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: p, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
`))
	for i, step := range []rlstest.Step{
		{Ask: "tokens=ada hits:0", Want: "OK: OK 100/YEAR left 100"},
		{Ask: "tokens=ada hits:90", Want: "OK: OK 100/YEAR left 10"},
		{Ask: "tokens=ada hits:0", Want: "OK: OK 100/YEAR left 10"},
		{Ask: "tokens=ada hits:30", Want: "OVER_LIMIT: OVER_LIMIT 100/YEAR left 0"},
		{Ask: "tokens=ada hits:0", Want: "OVER_LIMIT: OVER_LIMIT 100/YEAR left 0"},
		{Ask: "q=1 | p=1 | tokens=ada", Want: "OVER_LIMIT: OK 2/YEAR left 1 | OK 2/YEAR left 1 | OVER_LIMIT 100/YEAR left 0"},
		{Ask: "q=1 | p=1 | tokens=bob", Want: "OK: OK 2/YEAR left 0 | OK 2/YEAR left 0 | OK 100/YEAR left 99"},
		{Ask: "q=1 | p=1 | tokens=bob", Want: "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0 | OVER_LIMIT 2/YEAR left 0 | OK 100/YEAR left 98"},
	} {
		if got := ask(t, d, step.Ask); got != step.Want {
			t.Errorf("step %d, %s:\ngot  %s\nwant %s", i+1, step.Ask, got, step.Want)
		}
	}
}

// Abandoned store calls do not access the memory of their requests, which other calls reuse by then.
func TestCallsGivenUp(t *testing.T) {
	redis, memcached := redistest.Start(t), memcachetest.Start(t)
	onRedis, err := redisstore.Open(redisstore.Config{URL: redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer onRedis.Close()
	onMemcached, err := memcachestore.Open(memcachestore.Config{Addrs: []string{memcached.Addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer onMemcached.Close()
	loaded, err := rulefile.Load(rulefile.Options{}, rulesIn(t, `
  - {key: a, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: b, rate_limit: {unit: year, requests_per_unit: 1000000, accuracy: lease}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, store := range []sluice.Store{onRedis, onMemcached} {
		limiter, err := sluice.NewWithRules(store, nil, sluice.WithStoreTimeout(200*time.Microsecond))
		if err != nil {
			t.Fatal(err)
		}
		client := pb.NewRateLimitServiceClient(dial(t, rls.NewDecider(limiter, func() *rules.Set { return loaded.Set }, rls.Options{}), rls.Bounds{}))
		var all sync.WaitGroup
		for worker := range 16 {
			all.Go(func() {
				for i := range 30 {
					got := rlstest.Answer(t.Context(), client, "d", fmt.Sprintf("a=%d-%d | b=%d", worker, i, worker))
					if !strings.HasPrefix(got, "OK: OK 1000000/YEAR left 999") {
						t.Errorf("got %s", got)
					}
				}
			})
		}
		all.Wait()
		if err := limiter.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
