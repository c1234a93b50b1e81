package httplimit_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
)

// item is an item of a structured field list: a String with Integer parameters.
type item struct {
	name   string
	params map[string]int64
}

// parseList parses a List of such items strictly by RFC 9651, section 4.2.
func parseList(s string) (list []item, err error) {
	for {
		it := item{params: map[string]int64{}}
		if it.name, s, err = parseString(s); err != nil {
			return nil, err
		}
		for strings.HasPrefix(s, ";") {
			key, rest, found := strings.Cut(s[1:], "=")
			end := strings.IndexFunc(rest, func(c rune) bool { return c < '0' || c > '9' })
			if end < 0 {
				end = len(rest)
			}
			n, err := strconv.ParseInt(rest[:end], 10, 64)
			if !found || err != nil || end > 15 {
				return nil, fmt.Errorf("parameter %q", s)
			}
			it.params[key], s = n, rest[end:]
		}
		list = append(list, it)
		if s == "" {
			return list, nil
		}
		var found bool
		if s, found = strings.CutPrefix(s, ", "); !found {
			return nil, fmt.Errorf("rest %q", s)
		}
	}
}

func parseString(s string) (text, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		return "", "", fmt.Errorf("no string: %q", s)
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], nil
		case c == '\\':
			if i++; i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", "", errors.New("bad escape")
			}
			b.WriteByte(s[i])
		case c < ' ' || c > '~':
			return "", "", fmt.Errorf("byte %x", c)
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errors.New("string does not end")
}

// TestWindowAndT checks w and t against the formulas, for limits near every boundary.
func TestWindowAndT(t *testing.T) {
	tests := []struct {
		limit  sluice.Limit
		d      sluice.Decision
		policy string
		items  string
	}{
		{sluice.PerSecond(10), sluice.Decision{Allowed: true, Remaining: 5}, "q=10;w=1", "r=5;t=1"},
		{sluice.PerMinute(100), sluice.Decision{Allowed: true, Remaining: 99, ResetAfter: 600 * time.Millisecond}, "q=100;w=60", "r=99;t=60"},
		{sluice.PerMinute(100).WithBurst(10), sluice.Decision{Allowed: true, Remaining: 10}, "q=10;w=6", "r=10;t=6"},
		{sluice.PerMinute(100).WithBurst(1000), sluice.Decision{Allowed: true, Remaining: 7}, "q=1000;w=600", "r=7;t=5"},
		{sluice.Every(24 * time.Hour), sluice.Decision{Allowed: true}, "q=1;w=86400", "r=0;t=86400"},
		{sluice.Per(1, time.Millisecond), sluice.Decision{Allowed: true}, "q=1;w=1", "r=0;t=1"},
		{sluice.Per(7, time.Second).WithBurst(8), sluice.Decision{Allowed: true, Remaining: 8}, "q=8;w=2", "r=8;t=2"},
		{sluice.PerMinute(5).WithAlgorithm(sluice.FixedWindow), sluice.Decision{Allowed: true, Remaining: 3, ResetAfter: 10*time.Second + 1}, "q=5;w=60", "r=3;t=11"},
		{sluice.PerMinute(5).WithAlgorithm(sluice.FixedWindow), sluice.Decision{Allowed: true, Remaining: 5}, "q=5;w=60", "r=5;t=60"},
		{sluice.PerMinute(5).WithAlgorithm(sluice.SlidingWindowLog), sluice.Decision{Allowed: true, ResetAfter: 59 * time.Second}, "q=5;w=60", "r=0;t=59"},
		{sluice.PerMinute(5).WithAlgorithm(sluice.SlidingWindowCounter), sluice.Decision{Allowed: true, ResetAfter: 119 * time.Second}, "q=5;w=60", "r=0;t=60"},
		{sluice.PerMinute(5).WithAlgorithm(sluice.SlidingWindowLog), sluice.Decision{Allowed: true, Remaining: 2, ResetAfter: time.Second}, "q=5;w=60", "r=2;t=24"},
		{
			sluice.PerSecond(10_000_000).WithBurst(1 << 51),
			sluice.Decision{Allowed: true, Remaining: 1 << 51},
			"q=999999999999999;w=100000000", "r=999999999999999;t=225179982",
		},
		{sluice.PerMinute(5), sluice.Decision{Remaining: 3, RetryAfter: 2300 * time.Millisecond}, "q=5;w=60", "r=3;t=3"},
	}
	for _, tt := range tests {
		rules := []*sluice.Rule{rule("x", tt.limit)}
		tt.d.Limit = rules[0].Limit.Max()
		w := httptest.NewRecorder()
		if tt.d.Allowed {
			httplimit.SetQuotaHeaders(w, request(), rules, []sluice.Decision{tt.d})
		} else {
			httplimit.WriteDenial(w, request(), rules, []sluice.Decision{tt.d})
		}
		if got := w.Header().Get("Ratelimit-Policy"); got != `"x";`+tt.policy {
			t.Errorf("%v: policy %s, want %s", tt.limit, got, tt.policy)
		}
		if got := w.Header().Get("Ratelimit"); got != `"x";`+tt.items {
			t.Errorf("%v: %s, want %s", tt.limit, got, tt.items)
		}
	}
}

// TestDenyWithoutRules: a decision of a limiter with several rules does not name its rule.
func TestDenyWithoutRules(t *testing.T) {
	l := limiter(newClock().store(), rule("a", sluice.PerMinute(1)), rule("b", sluice.PerDay(1)))
	var d sluice.Decision
	for range 2 {
		d = sluice.Must(l.Allow(t.Context(), "alice"))
	}
	w := httptest.NewRecorder()
	httplimit.WriteDenial(w, request(), l.Rules(), []sluice.Decision{d})
	got := w.Result()
	if got.StatusCode != 429 || got.Header.Get("Retry-After") != "86400" || got.Header.Get("X-Ratelimit-Limit") != "1" ||
		got.Header.Get("Ratelimit") != "" || strings.Contains(w.Body.String(), "violated-policies") {
		t.Errorf("status %d, headers %v, body %s", got.StatusCode, got.Header, w.Body)
	}
}

// FuzzRateLimitHeader: for any rule name and decision, the fields parse, identify the rule, and do not contradict
// Retry-After.
func FuzzRateLimitHeader(f *testing.F) {
	f.Add("api", int64(100), int64(60_000), int64(100), int64(3), int64(2380), int64(60_000), false)
	f.Add("été \"x\\y\"\r\n", int64(1), int64(1), int64(0), int64(0), int64(0), int64(0), true)
	f.Add("%41", int64(math.MaxInt32), int64(1000), int64(1)<<50, int64(1)<<50, int64(-1), int64(-1), false)
	f.Add("0", int64(1), int64(15), int64(124), int64(76), int64(0), int64(89), false) // denied without RetryAfter
	f.Fuzz(func(t *testing.T, name string, count, millis, burst, remaining, retry, reset int64, allowed bool) {
		r, err := sluice.NewRule(sluice.Rule{Name: name, Limit: sluice.Per(count, time.Duration(millis)*time.Millisecond).WithBurst(burst)})
		if err != nil {
			return
		}
		d := sluice.Decision{
			Allowed: allowed, Limit: r.Limit.Burst, Remaining: remaining,
			RetryAfter: time.Duration(retry), ResetAfter: time.Duration(reset),
		}
		w := httptest.NewRecorder()
		rules, ds := []*sluice.Rule{r}, []sluice.Decision{d}
		if allowed {
			httplimit.SetQuotaHeaders(w, request(), rules, ds)
		} else {
			httplimit.WriteDenial(w, request(), rules, ds)
		}
		for _, field := range []string{"Ratelimit-Policy", "Ratelimit"} {
			list, err := parseList(w.Header().Get(field))
			if err != nil || len(list) != 1 {
				t.Fatalf("%s: %q: %v", field, w.Header().Get(field), err)
			}
			if printable(name) && list[0].name != name {
				t.Errorf("%s: name %q of rule %q", field, list[0].name, name)
			}
			if list[0].name == "" || field == "Ratelimit-Policy" && list[0].params["w"] < 1 || field == "Ratelimit" && list[0].params["t"] < 1 {
				t.Errorf("%s: %q", field, w.Header().Get(field))
			}
		}
		checkIntegers(t, w.Header(), allowed)
	})
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) < 0
}

func checkIntegers(t *testing.T, h http.Header, allowed bool) {
	t.Helper()
	for _, name := range []string{"Retry-After", "X-Ratelimit-Retry-After", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"} {
		onlyDenied := strings.HasSuffix(name, "Retry-After")
		if allowed && onlyDenied {
			if h.Get(name) != "" {
				t.Errorf("%s on an allowed response", name)
			}
			continue
		}
		n, err := strconv.ParseInt(h.Get(name), 10, 64)
		if err != nil || n < 0 || n == 0 && (onlyDenied || !allowed && name == "X-Ratelimit-Reset") {
			t.Errorf("%s: %q", name, h.Get(name))
		}
	}
	if !allowed {
		list, _ := parseList(h.Get("Ratelimit"))
		after, _ := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
		if list[0].params["t"] > after {
			t.Errorf("Retry-After %d is before the end of t=%d", after, list[0].params["t"])
		}
	}
}
