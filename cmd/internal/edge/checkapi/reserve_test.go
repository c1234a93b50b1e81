package checkapi_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/checkapi"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
)

// tokensRule allows 1000 per day in total.
const tokensRule = "rules: [{name: tokens, limit: {rate: 1000/day, algorithm: fixed_window}}]"

// reserve makes a reservation and fails the test if it is denied.
func (s *service) reserve(t testing.TB, more string) *answered {
	t.Helper()
	a := s.expect(t, 200, "/v1/reserve", `{"attributes":{}`+more+`}`)
	if a.Reservation == "" || a.ExpiresAt == "" {
		t.Fatalf("no reservation: %s", a.body)
	}
	return a
}

func (s *service) settle(t testing.TB, reservation string, actual int64) *answered {
	t.Helper()
	return s.ask(t, "/v1/settle", fmt.Sprintf(`{"reservation":%q,"actual_cost":%d}`, reservation, actual))
}

// remains returns the remaining quota of each limit.
func (s *service) remains(t testing.TB) string {
	t.Helper()
	a := s.ask(t, "/v1/check", `{"attributes":{},"peek":true}`)
	var all []string
	for _, l := range a.Limits {
		all = append(all, fmt.Sprint(l.Rule, " ", *l.Remaining))
	}
	return strings.Join(all, ", ")
}

func (s *service) wantRemains(t testing.TB, want string) {
	t.Helper()
	if got := s.remains(t); got != want {
		t.Errorf("remaining: %s, want %s", got, want)
	}
}

// A cost below the estimate is refunded and a cost above it is charged, once.
func TestSettle(t *testing.T) {
	for actual, want := range map[int64]string{0: "tokens 1000", 120: "tokens 880", 300: "tokens 700", 900: "tokens 100", 5000: "tokens 0"} {
		s := withRules(t, tokensRule)
		a := s.reserve(t, `,"cost":300`)
		s.wantRemains(t, "tokens 700")
		if a := s.settle(t, a.Reservation, actual); a.status != 200 || !a.Settled || a.Reason != "" || len(a.UnknownRules) != 0 {
			t.Errorf("%d: %d %s", actual, a.status, a.body)
		}
		s.wantRemains(t, want)
		for _, again := range []int64{actual, 0, 10_000} {
			if a := s.settle(t, a.Reservation, again); a.status != 200 || a.Settled || a.Reason != "already settled: nothing was changed" {
				t.Errorf("%d, again with %d: %d %s", actual, again, a.status, a.body)
			}
		}
		s.wantRemains(t, want)
	}
}

// A reservation that is settled concurrently is settled once.
func TestSettleConcurrently(t *testing.T) {
	s := withRules(t, tokensRule)
	server := newServer(t, s.mux)
	reservation := s.reserve(t, `,"cost":300`).Reservation
	var settled atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if a := server.ask(t, "/v1/settle", fmt.Sprintf(`{"reservation":%q,"actual_cost":100}`, reservation)); a.Settled {
				settled.Add(1)
			}
		})
	}
	all.Wait()
	if n := settled.Load(); n != 1 {
		t.Errorf("settled %d times", n)
	}
	s.wantRemains(t, "tokens 900")
}

// A denied check reserves nothing.
func TestReserveDenied(t *testing.T) {
	s := withRules(t, append(someRules[:1:1], "domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1}}]")...)
	for _, tt := range []struct {
		body   string
		status int
	}{
		{`{"attributes":{"path":"/tokens"},"cost":1001}`, 429},
		{`{"attributes":{"ip":"203.0.113.1"}}`, 403},
		{`{"domain":"d","descriptors":[[{"key":"k"}]],"cost":2}`, 429},
	} {
		a := s.expect(t, tt.status, "/v1/reserve", tt.body)
		if a.Reservation != "" || a.ExpiresAt != "" || !strings.Contains(a.body, `"reservation":null,"expires_at":null`) {
			t.Errorf("%s: %s", tt.body, a.body)
		}
		if tt.status == 429 && a.header.Get("X-Ratelimit-Remaining") == "" {
			t.Errorf("%s: no headers", tt.body)
		}
	}
	if a := s.expect(t, 200, "/v1/check", `{"attributes":{"path":"/tokens"},"peek":true}`); a.left(t) != 1000 {
		t.Error(a.body)
	}
}

// A reservation without charges can be settled too, so that callers need no special case.
func TestReserveUnlimited(t *testing.T) {
	s := withRules(t, someRules...)
	a := s.expect(t, 200, "/v1/reserve", `{"attributes":{"path":"/free"},"cost":5}`)
	if a := s.settle(t, a.Reservation, 3); !a.Settled {
		t.Error(a.body)
	}
}

// Rules that count requests are not settled with the actual cost, unless the reservation sets a cost for all rules.
func TestSettleByRules(t *testing.T) {
	const both = `
rules:
  - {name: requests, limit: {rate: 10/day, algorithm: fixed_window}}
  - {name: tokens, cost: {attr: tokens}, limit: {rate: 1000/day, algorithm: fixed_window}}
`
	reserve := func(s *service, more string) string {
		return s.expect(t, 200, "/v1/reserve", `{"attributes":{"attributes":{"tokens":"300"}}`+more+`}`).Reservation
	}
	for _, tt := range []struct {
		actual int64
		want   string
	}{{120, "requests 9, tokens 880"}, {0, "requests 10, tokens 1000"}, {400, "requests 9, tokens 600"}} {
		s := withRules(t, both)
		token := reserve(s, "")
		s.wantRemains(t, "requests 9, tokens 700")
		s.settle(t, token, tt.actual)
		s.wantRemains(t, tt.want)
	}
	s := withRules(t, both)
	s.settle(t, reserve(s, `,"cost":5`), 2)
	s.wantRemains(t, "requests 8, tokens 998")

	// A rule with an actual cost is settled even if its estimate is constant.
	s = withRules(t, `
rules:
  - {name: requests, limit: {rate: 10/day, algorithm: fixed_window}}
  - {name: tokens, cost: 300, actual_cost: {header: X-Tokens}, limit: {rate: 1000/day, algorithm: fixed_window}}
`)
	s.settle(t, reserve(s, ""), 120)
	s.wantRemains(t, "requests 9, tokens 880")
}

// Descriptors are reserved and settled too.
func TestSettleDescriptors(t *testing.T) {
	s := withRules(t, someRules...)
	const ask = `{"domain":"messaging","descriptors":[[{"key":"message_type","value":"a"}],[{"key":"message_type","value":"b"}]]`
	a := s.expect(t, 200, "/v1/reserve", ask+`,"cost":4}`)
	if a := s.settle(t, a.Reservation, 1); !a.Settled {
		t.Error(a.body)
	}
	if a := s.expect(t, 200, "/v1/check", ask+`,"cost":0}`); *a.Limits[0].Remaining != 4 || *a.Limits[1].Remaining != 4 {
		t.Error(a.body)
	}
}

// A reservation cannot be settled after expires_at, and its charge stays.
func TestReservationExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withRules(t, tokensRule)
		began := time.Now()
		short, usual, long := s.reserve(t, `,"cost":10,"ttl":"2s"`), s.reserve(t, `,"cost":10`), s.reserve(t, `,"cost":10,"ttl":"1h"`)
		for a, ttl := range map[*answered]time.Duration{short: 2 * time.Second, usual: 5 * time.Minute, long: time.Hour} {
			if at, err := time.Parse(time.RFC3339Nano, a.ExpiresAt); err != nil || !at.Equal(began.Add(ttl)) {
				t.Errorf("it expires at %s, %v, want %s", a.ExpiresAt, err, began.Add(ttl))
			}
		}
		<-time.After(2 * time.Second)
		if a := s.settle(t, short.Reservation, 0); a.status != http.StatusGone || !strings.Contains(a.Detail, "reservation expired") {
			t.Errorf("%d %s", a.status, a.body)
		}
		<-time.After(5*time.Minute - 2*time.Second - time.Millisecond)
		if a := s.settle(t, usual.Reservation, 0); !a.Settled {
			t.Errorf("%d %s", a.status, a.body)
		}
		<-time.After(time.Millisecond)
		if a := s.settle(t, usual.Reservation, 0); a.status != http.StatusGone {
			t.Errorf("%d %s", a.status, a.body)
		}
		s.wantRemains(t, "tokens 980")
		// A settlement is remembered until the reservation expires: much longer than stores remember idempotency IDs.
		if a := s.settle(t, long.Reservation, 0); !a.Settled {
			t.Errorf("%d %s", a.status, a.body)
		}
		for range 5 {
			<-time.After(10 * time.Minute)
			if a := s.settle(t, long.Reservation, 0); a.status != 200 || a.Settled {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		s.wantRemains(t, "tokens 990")
	})
}

// A forged reservation, or one with any bit changed, is rejected.
func TestForgedReservations(t *testing.T) {
	s := withRules(t, tokensRule)
	token := s.reserve(t, `,"cost":10`).Reservation
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what, token string) {
		t.Helper()
		if a := s.settle(t, token, 0); a.status != 400 || !strings.Contains(a.Detail, "not a reservation of this service") {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
	for i := range raw {
		for bit := range 8 {
			b := append([]byte(nil), raw...)
			b[i] ^= 1 << bit
			refused(fmt.Sprintf("bit %d of byte %d", bit, i), base64.RawURLEncoding.EncodeToString(b))
		}
	}
	for n := range raw {
		refused(fmt.Sprintf("%d bytes", n), base64.RawURLEncoding.EncodeToString(raw[:n]))
	}
	refused("with something behind it", token+"AAAA")
	refused("padded", token+"=")
	refused("empty", "")
	refused("of another process", withRules(t, tokensRule).reserve(t, `,"cost":10`).Reservation)
	s.wantRemains(t, "tokens 990")
	if a := s.settle(t, token, 0); !a.Settled {
		t.Errorf("the true one: %s", a.body)
	}
}

func secret(text string) option {
	return func(cfg *checkapi.Config) { cfg.Secret = []byte(text) }
}

// Instances with the same secret and store settle each other's reservations, each once.
func TestSettleElsewhere(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) func() (sluice.Store, error){
		"redis": func(t *testing.T) func() (sluice.Store, error) {
			server := redistest.Start(t)
			return func() (sluice.Store, error) { return redisstore.Open(redisstore.Config{URL: server.URL()}) }
		},
		"cluster": func(t *testing.T) func() (sluice.Store, error) {
			cluster := redistest.StartCluster(t)
			return func() (sluice.Store, error) { return redisstore.Open(redisstore.Config{URL: cluster.URL()}) }
		},
		"memcached": func(t *testing.T) func() (sluice.Store, error) {
			server := memcachetest.Start(t)
			return func() (sluice.Store, error) {
				return memcachestore.Open(memcachestore.Config{Addrs: []string{server.Addr}})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			next := open(t)
			set := parseRules(t, tokensRule)
			process := func(text string) *service {
				store, err := next()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					switch s := store.(type) {
					case *redisstore.Store:
						s.Close()
					case *memcachestore.Store:
						_ = s.Close()
					}
				})
				return newService(t, store, set, secret(text))
			}
			first, second, other := process("shared"), process("shared"), process("another")
			token := first.reserve(t, `,"cost":300`).Reservation
			if a := other.settle(t, token, 0); a.status != 400 {
				t.Errorf("with another secret: %d %s", a.status, a.body)
			}
			if a := second.settle(t, token, 100); !a.Settled {
				t.Errorf("%d %s", a.status, a.body)
			}
			for _, s := range []*service{first, second} {
				if a := s.settle(t, token, 0); a.status != 200 || a.Settled {
					t.Errorf("again: %d %s", a.status, a.body)
				}
				s.wantRemains(t, "tokens 900")
			}
		})
	}
}

// Rules may change before a reservation is settled. Removed rules are named, and no refund goes to a rule that was not
// charged.
func TestSettleAfterChange(t *testing.T) {
	const other = "rules: [{name: other, limit: {rate: 50/day, algorithm: fixed_window}}]"
	for name, tt := range map[string]struct {
		rules   string
		settled bool
		why     string
		remains string
	}{
		"same":     {tokensRule, true, "", "tokens 900"},
		"numbers":  {"rules: [{name: tokens, limit: {rate: 2000/day, algorithm: fixed_window}}]", true, "", "tokens 1900"},
		"gone":     {other, false, "not settled, because the rules were removed or changed algorithm: tokens", "other 50"},
		"kind":     {"rules: [{name: tokens, limit: 1000/day}]", false, "not settled, because the rules were removed or changed algorithm: tokens", "tokens 1000"},
		"disabled": {"rules: [{name: tokens, enabled: false, limit: {rate: 1000/day, algorithm: fixed_window}}]", false, "not settled, because the rules were removed or changed algorithm: tokens", ""},
	} {
		s := withRules(t, tokensRule)
		token := s.reserve(t, `,"cost":300`).Reservation
		s.rules = parseRules(t, tt.rules)
		a := s.settle(t, token, 100)
		if a.status != 200 || a.Settled != tt.settled || a.Reason != tt.why || (len(a.UnknownRules) == 1) == tt.settled {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		s.wantRemains(t, tt.remains)
	}

	both := "rules: [{name: tokens, limit: {rate: 1000/day, algorithm: fixed_window}}, {name: other, limit: {rate: 1000/day, algorithm: fixed_window}}]"
	s := withRules(t, both)
	token := s.reserve(t, `,"cost":300`).Reservation
	s.rules = parseRules(t, tokensRule)
	if a := s.settle(t, token, 0); !a.Settled || fmt.Sprint(a.UnknownRules) != "[other]" || a.Reason == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.rules = parseRules(t, both)
	s.wantRemains(t, "tokens 1000, other 700")
	s.rules = nil
	if a := s.settle(t, token, 0); a.status != 503 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A limit of a plan or of a key is settled in its bucket.
func TestSettleTiers(t *testing.T) {
	s := withRules(t, `
rules:
  - name: r
    per: ["header:X-User"]
    limit: {rate: 10/day, burst: 10}
    tiers: {by: "header:X-Plan", pro: {rate: 1000/day, burst: 1000}}
    overrides:
      - {key: root, limit: {rate: 5000/day, burst: 5000}}
`)
	for _, tt := range []struct {
		headers string
		cost    int64
	}{{`{"X-User":"ada"}`, 8}, {`{"X-User":"bob","X-Plan":"pro"}`, 800}, {`{"X-User":"root"}`, 4000}} {
		check := `{"attributes":{"headers":` + tt.headers + `}`
		a := s.expect(t, 200, "/v1/reserve", fmt.Sprintf(`%s,"cost":%d}`, check, tt.cost))
		limit := a.Limits[0].Limit
		if a := s.settle(t, a.Reservation, tt.cost/2); !a.Settled {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := s.expect(t, 200, "/v1/check", check+`,"peek":true}`); a.left(t) != limit-tt.cost/2 {
			t.Errorf("%s: %d remain of %d", tt.headers, a.left(t), limit)
		}
	}
}

// A check that a fail mode allowed was not charged and is not settled. While the store is unavailable nothing is settled.
func TestSettleStoreAway(t *testing.T) {
	store := &away{Store: memstore.New()}
	s := newService(t, store, parseRules(t, tokensRule))
	token := s.reserve(t, `,"cost":300`).Reservation
	store.fail(sluice.ErrUnavailable)
	local := s.reserve(t, `,"cost":300`)
	if *local.Degraded != "local" {
		t.Error(local.body)
	}
	if a := s.settle(t, token, 0); a.status != 503 || a.header.Get("Retry-After") == "" || !strings.Contains(a.Detail, "store unavailable") {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.rules = parseRules(t, "rules: [{name: tokens, on_failure: closed, limit: {rate: 1000/day, algorithm: fixed_window}}]")
	s.expect(t, 503, "/v1/reserve", `{"attributes":{}}`)
	store.fail(fmt.Errorf("%w: on purpose", sluice.ErrInvalid))
	if a := s.settle(t, token, 0); a.status != 500 {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.expect(t, 500, "/v1/reserve", `{"attributes":{}}`)
	store.err.Store(nil)
	if a := s.settle(t, local.Reservation, 0); !a.Settled {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.wantRemains(t, "tokens 700")
	if a := s.settle(t, token, 0); !a.Settled {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.wantRemains(t, "tokens 1000")
}

// A check that does not fit in a token is rejected before it is charged; the largest one that fits can be settled.
func TestReservationSize(t *testing.T) {
	s := withRules(t, `
rules:
  - {name: a, per: ["query:a", "query:b", "query:c"], limit: {rate: 5/day, algorithm: fixed_window}}
  - {name: b, per: ["query:d"], limit: {rate: 5/day, algorithm: fixed_window}}
`)
	body := func(n int) string {
		v := strings.Repeat("é", n/2)
		return fmt.Sprintf(`{"attributes":{"query":{"a":%q,"b":%q,"c":%q,"d":%q}}`, v, v, v, v)
	}
	a := s.expect(t, 400, "/v1/reserve", body(8192)+"}")
	if !strings.Contains(a.Detail, "too long for a reservation") {
		t.Error(a.body)
	}
	if a := s.expect(t, 200, "/v1/check", body(8192)+`,"peek":true}`); a.left(t) != 5 {
		t.Errorf("it was charged: %s", a.body)
	}
	a = s.expect(t, 200, "/v1/reserve", body(8000)+"}")
	if a := s.settle(t, a.Reservation, 0); !a.Settled {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.expect(t, 200, "/v1/check", body(8000)+`,"peek":true}`); a.left(t) != 5 {
		t.Errorf("not refunded: %s", a.body)
	}
}

// Reservations of version 1, from before an update, are settled until they expire. They have no marks: the refund to a bucket
// is limited to the part that, by the receipt alone, cannot have been replenished.
func TestSettleVersion1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withRules(t, "rules: [{name: tokens, limit: {rate: 60/min, burst: 100}}]")
		a := s.expect(t, 200, "/v1/check", `{"attributes":{},"cost":50}`)
		at := time.Now().UnixMicro()
		rule, limits := s.rules.LookupLimits("tokens", "")
		if rule == nil || len(limits) != 1 || a.left(t) != 50 {
			t.Fatal(rule, limits, a.body)
		}
		old := func(id byte, expires time.Time) string {
			return s.Authentic(checkapi.PayloadV1([16]byte{id}, expires, "tokens", "", limits[0], at, 50))
		}
		token, expired := old(1, time.Now().Add(time.Minute)), old(2, time.Now().Add(time.Second))
		<-time.After(10 * time.Second)
		if a := s.settle(t, token, 20); !a.Settled {
			t.Errorf("%d %s", a.status, a.body)
		}
		s.wantRemains(t, "tokens 90") // 100 - 50 + 10 of 10 s + 30
		if a := s.settle(t, token, 0); a.Settled {
			t.Errorf("again: %s", a.body)
		}
		if a := s.settle(t, expired, 0); a.status != http.StatusGone {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// The usage after a settlement is capped, and the cost above the cap is returned as forgiven.
func TestSettleForgives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withRules(t, "rules: [{name: tokens, limit: {rate: 1/s, burst: 10}}]")
		a := s.reserve(t, `,"cost":1`)
		if a := s.settle(t, a.Reservation, 1_000_000); !a.Settled || a.Forgiven != 996_300 {
			t.Errorf("%d %s", a.status, a.body)
		}
		a = s.expect(t, 429, "/v1/check", `{"attributes":{}}`)
		if reset := *a.Limits[0].ResetAfterMS; reset != 3_700_000 {
			t.Errorf("fully reset in %d ms, want 3,700,000", reset)
		}
		<-time.After(3_690 * time.Second)
		s.wantRemains(t, "tokens 0")
		<-time.After(time.Second)
		s.wantRemains(t, "tokens 1")
	})
}

// Repeatedly reserving 5 and settling 10 five seconds later, with a rate of 1/s and a burst of 10, uses the rate exactly.
func TestSettleLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withRules(t, "rules: [{name: tokens, limit: {rate: 1/s, burst: 10}}]")
		began := time.Now()
		for range 200 {
			var a *answered
			for {
				a = s.ask(t, "/v1/reserve", `{"attributes":{},"cost":5}`)
				if a.Allowed {
					break
				}
				<-time.After(time.Duration(a.Limits[0].RetryAfterMS) * time.Millisecond)
			}
			<-time.After(5 * time.Second)
			if a := s.settle(t, a.Reservation, 10); !a.Settled || a.Forgiven != 0 {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		if took := time.Since(began); took != 1990*time.Second {
			t.Errorf("a usage of 2,000 took %v, want 1,990 s", took)
		}
	})
}
