package checkapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/checkapi"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
)

// refundRules have one rule per algorithm, with limits that are not replenished while the tests run.
const refundRules = `
rules:
  - {name: token_bucket, match: {path: /token_bucket}, limit: {rate: 10/300d}}
  - {name: burst_bucket, match: {path: /burst_bucket}, limit: {rate: 10/300d, burst: 20}}
  - {name: leaky_bucket, match: {path: /leaky_bucket}, limit: {rate: 10/300d, algorithm: leaky_bucket}}
  - {name: interval, match: {path: /interval}, limit: {rate: 10/300d, refill: interval}}
  - {name: fixed_window, match: {path: /fixed_window}, limit: {rate: 10/300d, algorithm: fixed_window}}
  - {name: counter, match: {path: /counter}, limit: {rate: 10/300d, algorithm: sliding_window_counter}}
  - {name: sub_windows, match: {path: /sub_windows}, limit: {rate: 10/300d, algorithm: sliding_window_counter, sub_windows: 10}}
  - {name: shadowed, match: {path: /fixed_window}, shadow: true, limit: {rate: 5/300d, algorithm: fixed_window}}
  - {name: log, match: {path: /log}, limit: {rate: 10/300d, algorithm: sliding_window_log}}
  - {name: beside_log, match: {path: /log}, limit: {rate: 10/300d}}
  - {name: queue, match: {path: /queue}, limit: {rate: 10/300d, algorithm: leaky_queue}}
`

const refundDomain = `
domain: messaging
descriptors:
  - key: message_type
    rate_limit: {unit: year, requests_per_unit: 5}
`

func mayRefund(c *checkapi.Config) {
	c.Refunds = func(*http.Request) *checkapi.Refusal { return nil }
}

// refundStores are the stores for the tests of refunds.
var refundStores = map[string]func(t *testing.T) (sluice.Store, error){
	"memory": func(*testing.T) (sluice.Store, error) { return memstore.New(), nil },
	"redis": func(t *testing.T) (sluice.Store, error) {
		return redisstore.Open(redisstore.Config{URL: redistest.Start(t).URL()})
	},
	"memcached": func(t *testing.T) (sluice.Store, error) {
		return memcachestore.Open(memcachestore.Config{Addrs: []string{memcachetest.Start(t).Addr}})
	},
}

// cost sends a check with a cost and compares the remaining quota and the refund of the first limit.
func (s *service) cost(t *testing.T, path string, n, remaining, refunded int64) {
	t.Helper()
	a := s.expect(t, 200, "/v1/check", fmt.Sprintf(`{"attributes":{"path":"/%s"},"cost":%d}`, path, n))
	if len(a.Limits) == 0 || a.left(t) != remaining || (a.Limits[0].Refunded == nil) != (n >= 0) {
		t.Errorf("/%s at a cost of %d: %s, want %d left", path, n, a.body, remaining)
		return
	}
	// A bucket was replenished by a fraction since the charge, so the refund can be 1 less.
	rounded := strings.HasSuffix(path, "bucket") && remaining == a.Limits[0].Limit && n < 0 && *a.Limits[0].Refunded == refunded-1
	if n < 0 && *a.Limits[0].Refunded != refunded && !rounded {
		t.Errorf("/%s refunds %d of %d, want %d: %s", path, *a.Limits[0].Refunded, -n, refunded, a.body)
	}
}

// A negative cost refunds earlier charges, at most the current usage: the remaining quota never exceeds the limit.
func TestRefund(t *testing.T) {
	for name, open := range refundStores {
		t.Run(name, func(t *testing.T) {
			store, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			if c, ok := store.(interface{ Close() }); ok {
				t.Cleanup(c.Close)
			}
			s := newService(t, store, parseRules(t, refundRules, refundDomain), mayRefund)
			for _, path := range []string{"token_bucket", "leaky_bucket", "interval", "fixed_window", "counter", "sub_windows"} {
				s.cost(t, path, -3, 10, 0) // no usage
				s.cost(t, path, 7, 3, 0)
				s.cost(t, path, -4, 7, 4)
				s.cost(t, path, -1000, 10, 3) // at most the usage
				s.cost(t, path, 10, 0, 0)
				s.cost(t, path, -10, 10, 10)
			}
			s.cost(t, "burst_bucket", 20, 0, 0)
			s.cost(t, "burst_bucket", -20, 20, 20)

			s.cost(t, "fixed_window", 10, 0, 0) // a block does not prevent it
			buckets, err := s.rules.Buckets("fixed_window", nil)
			if err != nil {
				t.Fatal(err)
			}
			block := func(d time.Duration) {
				if err := s.limiter.BlockBuckets(t.Context(), d, buckets...); err != nil {
					t.Fatal(err)
				}
			}
			block(time.Hour)
			s.cost(t, "fixed_window", -4, 4, 4)
			s.expect(t, 429, "/v1/check", `{"attributes":{"path":"/fixed_window"}}`)
			block(0)
			s.cost(t, "fixed_window", 0, 4, 0)
		})
	}
}

// Refunds work with descriptors, with rules in shadow mode, and for each check of a list independently.
func TestRefundElsewhere(t *testing.T) {
	s := newService(t, memstore.New(), parseRules(t, refundRules, refundDomain), mayRefund)
	const descriptors = `"domain":"messaging","descriptors":[[{"key":"message_type","value":"news"}]]`
	s.expect(t, 200, "/v1/check", `{`+descriptors+`,"cost":5}`)
	s.expect(t, 429, "/v1/check", `{`+descriptors+`}`)
	if a := s.expect(t, 200, "/v1/check", `{`+descriptors+`,"cost":-2}`); a.left(t) != 2 || *a.Limits[0].Refunded != 2 {
		t.Errorf("%s", a.body)
	}
	s.expect(t, 200, "/v1/check", `{"domain":"none","descriptors":[[{"key":"a"}]],"cost":-2}`)
	s.expect(t, 200, "/v1/check", `{"attributes":{"path":"/none"},"cost":-2}`)

	s.expect(t, 200, "/v1/check", `{"attributes":{"path":"/fixed_window"},"cost":5}`)
	a := s.expect(t, 200, "/v1/check", `{"attributes":{"path":"/fixed_window"},"cost":-2}`)
	if i := slices.IndexFunc(a.Limits, func(l limit) bool { return l.Rule == "shadowed" }); i < 0 || *a.Limits[i].Remaining != 2 || *a.Limits[i].Refunded != 2 {
		t.Errorf("%s", a.body)
	}

	a = s.expect(t, 200, "/v1/check", `{"checks":[{"attributes":{"path":"/log"},"cost":-1},{"attributes":{"path":"/fixed_window"},"cost":-3}]}`)
	if len(a.Results) != 2 || a.Results[0].Status != 422 || a.Results[1].Status != 200 || *a.Results[1].Limits[0].Refunded != 3 {
		t.Errorf("%s", a.body)
	}
}

// A suspended rule refunds nothing and reports its source.
func TestRefundSuspended(t *testing.T) {
	s := newService(t, memstore.New(), parseRules(t, refundRules), mayRefund)
	s.cost(t, "token_bucket", 7, 3, 0)
	s.limiter.Suspend("token_bucket")
	a := s.expect(t, 200, "/v1/check", `{"attributes":{"path":"/token_bucket"},"cost":-4}`)
	if a.Degraded == nil || *a.Degraded != "suspended" || *a.Limits[0].Refunded != 0 {
		t.Errorf("%s", a.body)
	}
	s.limiter.Resume("token_bucket")
	s.cost(t, "token_bucket", 0, 3, 0)
}

// If one of the matching limits does not support refunds, none is changed, and the problem names it and the reason.
func TestRefundImpossible(t *testing.T) {
	s := newService(t, memstore.New(), parseRules(t, refundRules), mayRefund)
	for path, want := range map[string]string{
		"log":   "rule log does not support refunds, because a sliding_window_log cannot select",
		"queue": "rule queue does not support refunds, because a leaky_queue has already scheduled",
	} {
		body := `{"attributes":{"path":"/` + path + `"}`
		s.expect(t, 200, "/v1/check", body+`,"cost":4}`)
		before := s.expect(t, 200, "/v1/check", body+`,"peek":true}`)
		if a := s.expect(t, 422, "/v1/check", body+`,"cost":-2}`); !strings.Contains(a.Detail, want) {
			t.Errorf("/%s: %s", path, a.Detail)
		}
		after := s.expect(t, 200, "/v1/check", body+`,"peek":true}`)
		for i := range after.Limits {
			if *after.Limits[i].Remaining != *before.Limits[i].Remaining {
				t.Errorf("/%s: %s, before: %s", path, after.body, before.body)
			}
		}
	}
}

// Without a token nothing is refunded, and no check of the body is decided. The problem names the setting.
func TestRefundUnauthorized(t *testing.T) {
	set := parseRules(t, refundRules)
	const body = `{"checks":[{"attributes":{"path":"/token_bucket"},"cost":2},{"attributes":{"path":"/token_bucket"},"cost":-5}]}`
	for want, refunds := range map[int]func(*http.Request) *checkapi.Refusal{
		http.StatusForbidden: nil,
		http.StatusUnauthorized: func(*http.Request) *checkapi.Refusal {
			return &checkapi.Refusal{Status: 401, Detail: "send the token in the file"}
		},
		http.StatusTooManyRequests: func(*http.Request) *checkapi.Refusal {
			return &checkapi.Refusal{Status: 429, Detail: "too many wrong tokens", Limit: 2}
		},
	} {
		s := newService(t, memstore.New(), set, func(c *checkapi.Config) { c.Refunds = refunds })
		s.cost(t, "token_bucket", 7, 3, 0)
		a := s.expect(t, want, "/v1/check", body)
		if refunds == nil && !strings.Contains(a.Detail, "check_api.refund_token_file") {
			t.Errorf("%s does not name the setting", a.Detail)
		}
		s.cost(t, "token_bucket", 0, 3, 0)
	}
	s := newService(t, memstore.New(), set, mayRefund)
	s.expect(t, 400, "/v1/reserve", `{"attributes":{"path":"/token_bucket"},"cost":-5}`)
}

// While the store is unavailable nothing is refunded in any fail mode, and the response is 503. After recovery the store has
// its previous usage and the usage admitted during the outage.
func TestRefundStoreUnavailable(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	store, err := redisstore.Open(redisstore.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	const outage = `
rules:
  - {name: local, match: {path: /local}, limit: {rate: 10/300d, algorithm: fixed_window}}
  - {name: open, match: {path: /open}, on_failure: open, limit: {rate: 10/300d, algorithm: fixed_window}}
  - {name: closed, match: {path: /closed}, on_failure: closed, limit: {rate: 10/300d, algorithm: fixed_window}}
`
	s := newService(t, store, parseRules(t, outage), mayRefund)
	paths := []string{"local", "open", "closed"}
	for _, path := range paths {
		s.cost(t, path, 10, 0, 0)
	}
	server.Kill()
	for _, path := range paths {
		a := s.expect(t, 503, "/v1/check", `{"attributes":{"path":"/`+path+`"},"cost":-4}`)
		if !strings.Contains(a.Detail, "the refund is not confirmed") {
			t.Errorf("/%s: %s", path, a.body)
		}
	}
	if a := s.expect(t, 429, "/v1/check", `{"attributes":{"path":"/local"}}`); a.Degraded == nil || *a.Degraded != "local" {
		t.Errorf("a failed refund changed the local count: %s", a.body)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		a := s.ask(t, "/v1/check", `{"attributes":{"path":"/local"},"cost":-4}`)
		if a.status == 200 && a.left(t) == 4 {
			break
		}
		if a.status != 503 || time.Now().After(deadline) {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
}

// A rule with accuracy lease refunds nothing, because unused leased quota counts as used. With accuracy eventual the refund
// applies to the local estimate at once, and to the store with the next sync.
func TestRefundAccuracy(t *testing.T) {
	store, err := redisstore.Open(redisstore.Config{URL: redistest.Start(t).URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	const accuracies = `
rules:
  - {name: leased, match: {path: /leased}, accuracy: lease, limit: {rate: 100/300d, algorithm: fixed_window}}
  - {name: eventual, match: {path: /eventual}, accuracy: eventual, limit: {rate: 100/300d, algorithm: fixed_window}}
`
	set := parseRules(t, accuracies)
	s := newService(t, store, set, mayRefund)
	s.expect(t, 200, "/v1/check", `{"attributes":{"path":"/leased"},"cost":10}`)
	if a := s.expect(t, 422, "/v1/check", `{"attributes":{"path":"/leased"},"cost":-10}`); !strings.Contains(a.Detail, "rule leased has accuracy: lease") {
		t.Errorf("%s", a.Detail)
	}
	s.cost(t, "eventual", 60, 40, 0)
	s.cost(t, "eventual", 30, 10, 0) // possibly not synced yet
	s.cost(t, "eventual", -70, 80, 70)
	if err := s.limiter.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	newService(t, store, set).cost(t, "eventual", 0, 80, 0)

	in := newService(t, memstore.New(), set, mayRefund) // without leases
	in.cost(t, "leased", 10, 90, 0)
	in.cost(t, "leased", -10, 100, 10)
}
