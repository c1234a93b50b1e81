package recommend

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// clients returns the traffic of clients that send n requests at once every interval, for a time.
func clients(keys, n int, interval, span time.Duration) *Traffic {
	var all []Arrival
	for k := range keys {
		for at := time.Duration(k) * interval / time.Duration(keys); at < span; at += interval {
			for range n {
				all = append(all, Arrival{Micros: 1_700_000_000_000_000 + at.Microseconds(), Key: fmt.Sprint("client ", k), Cost: 1})
			}
		}
	}
	return trafficOf(all)
}

// The algorithm fits the behaviour of the clients.
func TestAlgorithm(t *testing.T) {
	for _, c := range []struct {
		name    string
		traffic *Traffic
		rates   []Rate
		want    sluice.Algorithm
	}{
		{"page loads", trafficOf(accessLog(t, "shop-access.log")), nil, sluice.TokenBucket},
		{"a batch every minute", clients(20, 5, time.Minute, time.Hour), []Rate{{5, time.Minute}}, sluice.SlidingWindowLog},
		{"one request every second", clients(20, 1, time.Second, 5*time.Minute), []Rate{{1, time.Second}}, sluice.LeakyBucket},
		{"a few requests a day", clients(20, 3, 12*time.Hour, 10*24*time.Hour), []Rate{{6, 24 * time.Hour}}, sluice.FixedWindow},
	} {
		config := deny
		config.Rates = c.rates
		r, err := c.traffic.Recommend(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if r.Limit.Algorithm != c.want || r.Training.Clients.Denied > 0 {
			t.Errorf("%s: %v, which denies %d; %s", c.name, r.Limit, r.Training.Clients.Denied, r.Reason)
		}
	}
}

// The largest queue and the permits of a concurrency limit are needed: one less denies a request.
func TestPurposes(t *testing.T) {
	shop := accessLog(t, "shop-access.log")
	for i := range shop {
		shop[i].Duration = int64(100_000 + i%7*300_000)
	}
	for _, purpose := range []Purpose{Queue, Concurrency} {
		c := deny
		c.For, c.Block = purpose, 24*time.Hour // all of it trains
		traffic := trafficOf(shop)
		for k := range traffic.crawlers {
			traffic.crawlers[k] = false
		}
		r, err := traffic.Recommend(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		less := r.Limit
		if purpose == Queue {
			less.Burst--
		} else {
			less.Count--
		}
		if n := deniedAt(t, traffic, r.Limit); n != 0 {
			t.Errorf("%v denies %d", r.Limit, n)
		}
		if n := deniedAt(t, traffic, less); n == 0 {
			t.Errorf("%v denies nothing", less)
		}
		if want := longestWait(r.Limit); purpose == Queue && (r.MaxDelay > want || r.MaxDelay == 0) {
			t.Errorf("the longest delay is %v, of at most %v", r.MaxDelay, want)
		}
	}
	crawlers := &Traffic{}
	crawlers.Add(Arrival{Micros: 1, Key: "a", Cost: 1, Crawler: true})
	if _, err := crawlers.Recommend(t.Context(), deny); err != ErrNoClients {
		t.Errorf("only crawlers: %v", err)
	}
	if _, err := (&Traffic{}).Recommend(t.Context(), deny); err != ErrNoRequests {
		t.Errorf("no requests: %v", err)
	}
	if _, err := trafficOf(accessLog(t, "shop-access.log")).Recommend(t.Context(), Config{For: Concurrency}); err != ErrNoDurations {
		t.Errorf("without durations: %v", err)
	}
}

// One key can never be allowed more in a second than the capacity, and the rule for all keys together limits the rest.
func TestCapacity(t *testing.T) {
	shop := accessLog(t, "shop-access.log")
	c := deny
	c.Capacity = Rate{30, time.Second}
	r, err := trafficOf(shop).Recommend(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Knee.peak() > 30 || r.Capacity.OneKey > 30 {
		t.Errorf("%v is above the capacity", r.Limit)
	}
	if !strings.Contains(r.Rule, "recommended-total") || !strings.Contains(r.Rule, "rate: 30/s, algorithm: sliding_window_log") {
		t.Errorf("no limit for all keys together:\n%s", r.Rule)
	}
	if n := deniedAt(t, trafficOf(shop), total(c.Capacity)); n != 0 == r.Capacity.Fits {
		t.Errorf("the total limit denies %d, but fits: %v", n, r.Capacity.Fits)
	}
	c.Capacity.Count = 10
	if _, err := trafficOf(shop).Recommend(t.Context(), c); err == nil || !strings.Contains(err.Error(), "27/s") {
		t.Errorf("a capacity that is too small: %v", err)
	}
	for _, capacity := range []int64{1, 2, 9_999, 10_000, 10_001, 1_000_000} {
		l := total(Rate{capacity, time.Second})
		most := l.Max()
		if l.Algorithm == sluice.TokenBucket {
			most += l.Count
		}
		if most > capacity {
			t.Errorf("%v allows %d in a second, above %d", l, most, capacity)
		}
	}
}

// The rule and its test are added to a directory, in shadow mode, and nothing is overwritten.
func TestWrite(t *testing.T) {
	r, err := trafficOf(accessLog(t, "shop-access.log")).Recommend(t.Context(), deny)
	if err != nil {
		t.Fatal(err)
	}
	names := func(dir string) string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return strings.Join(all, " ")
	}
	write := func(dir, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, file, text, want, err string }{
		{"empty directory", "", "", "recommended.yaml recommended_test.yaml", ""},
		{"other rules", "a.yaml", "client_ip: {trusted_proxies: [10.0.0.0/8]}\nrules:\n  - {name: a, limit: 1/s}\n", "a.yaml recommended.yaml recommended_test.yaml", ""},
		{"same rule", "a.yaml", "rules:\n  - {name: recommended, limit: 1/s}\n", "a.yaml", "--name"},
		{"rules with an error", "a.yaml", "rules:\n  - {name: a}\n", "a.yaml", "correct them first"},
		{"test exists", "recommended_test.yaml", "tests: []\n", "recommended_test.yaml", "exists already"},
		{"rule exists, and its test not", "recommended.yaml", "rules:\n  - {name: a, limit: 1/s}\n", "recommended.yaml", "recommended.yaml"},
	} {
		dir := t.TempDir()
		if c.file != "" {
			write(dir, c.file, c.text)
		}
		err := r.Write(t.Context(), dir)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.err)
		}
		if got := names(dir); got != c.want {
			t.Errorf("%s: the directory contains %s, want %s", c.name, got, c.want)
		}
		if c.err == "" {
			loaded, err := rulefile.Load(rulefile.Options{}, dir)
			if err != nil {
				t.Fatal(err)
			}
			all := loaded.Set.Config().Rules
			if i := slices.IndexFunc(all, func(rule rules.Rule) bool { return rule.Name == "recommended" }); i < 0 || !all[i].Shadow {
				t.Errorf("%s: the rule is not in shadow mode", c.name)
			}
		}
	}
	if err := r.Write(t.Context(), filepath.Join(t.TempDir(), "missing")); err == nil || !strings.Contains(err.Error(), "no such directory") {
		t.Errorf("missing directory: %v", err)
	}
}

// Above the bounds, half of the keys are used with all of their requests, and of few keys the first requests.
func TestBounds(t *testing.T) {
	defer func(a, k, m int) { maxArrivals, maxKeys, minKeys = a, k, m }(maxArrivals, maxKeys, minKeys)
	maxArrivals, maxKeys, minKeys = 1000, 100, 10
	t.Run("many keys", func(t *testing.T) {
		traffic, sent := &Traffic{}, make(map[string]int)
		random := rand.New(rand.NewPCG(1, 1))
		for i := range 5000 {
			key := fmt.Sprint(random.IntN(700))
			sent[key]++
			traffic.Add(Arrival{Micros: int64(i) * 1000, Key: key, Cost: 1 + int64(i%3), Duration: 5})
		}
		traffic.group()
		if len(traffic.names) > maxKeys || len(traffic.key) > maxArrivals || traffic.Sample() < 8 || traffic.Dropped > 0 {
			t.Errorf("%d keys, %d requests, 1 in %d, %d dropped", len(traffic.names), len(traffic.key), traffic.Sample(), traffic.Dropped)
		}
		for k, name := range traffic.names {
			if n := len(traffic.of(k)); n != sent[name] {
				t.Errorf("key %s has %d of %d requests", name, n, sent[name])
			}
		}
		if len(traffic.names) < 20 {
			t.Errorf("only %d keys are left", len(traffic.names))
		}
	})
	t.Run("few keys", func(t *testing.T) {
		traffic := &Traffic{}
		for i := range 1500 {
			traffic.Add(Arrival{Micros: int64(i) * 1000, Key: fmt.Sprint(i % 5), Cost: 1})
		}
		if traffic.Requests() != 1000 || traffic.Dropped != 500 || traffic.Sample() != 1 {
			t.Errorf("%d requests, %d dropped, 1 in %d keys", traffic.Requests(), traffic.Dropped, traffic.Sample())
		}
	})
}

func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"5.6/s", "10/s", "90/min", "28/5s", "0.1/day", "1/0s", "5 concurrent", "-1/s", "1.0000001/s", "9e9/s", "./s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRate(s)
		if err != nil {
			return
		}
		again, err := ParseRate(r.String())
		if err != nil || again.Count*int64(r.Window) != r.Count*int64(again.Window) {
			t.Errorf("%q is %v, read again as %v, %v", s, r, again, err)
		}
	})
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]Rate{
		"5.6/s": {28, 5 * time.Second}, "10/s": {10, time.Second}, "1.5/min": {3, 2 * time.Minute}, "300/3h": {300, 3 * time.Hour}, "0.25/s": {1, 4 * time.Second},
	} {
		if r, err := ParseRate(text); r != want || err != nil {
			t.Errorf("%s is %v, %v", text, r, err)
		}
	}
	for _, text := range []string{"", "5", "0/s", "-1/s", "5.x/s", "1.-5/s", "0.00000001/s", "5 concurrent", "1/1us"} {
		if r, err := ParseRate(text); err == nil {
			t.Errorf("%q is %v", text, r)
		}
	}
}

// A steady client that sends three times as much as the others is no outlier, however long it does: the limit has to suit it.
func TestSteadyClientIsNoOutlier(t *testing.T) {
	var all []Arrival
	add := func(key string, first, interval time.Duration) {
		for at := first; at < 2*time.Hour; at += interval {
			all = append(all, Arrival{Micros: 1_700_000_000_000_000 + at.Microseconds(), Key: key, Cost: 1})
		}
	}
	add("steady", 0, 20*time.Second)
	for k := range 30 {
		add(fmt.Sprint("client ", k), time.Duration(k)*time.Second, time.Minute)
	}
	r, err := trafficOf(all).Recommend(t.Context(), deny)
	if err != nil {
		t.Fatal(err)
	}
	if r.Whole.Outliers.Keys > 0 || r.Whole.Clients.Denied > 0 {
		t.Errorf("%v: outliers %+v, clients %+v", r.Limit, r.Whole.Outliers, r.Whole.Clients)
	}
}

// The missing blocks give a queue no time to drain: the limit of clients that send all the time is not half of their rate.
func TestBlocksAreMovedTogether(t *testing.T) {
	r, err := clients(20, 1, time.Minute, time.Hour).Recommend(t.Context(), Config{
		For: Deny, Untouched: 999_000, Name: "recommended", Per: []string{"ip"}, Block: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Whole.Clients.Denied > 0 || r.Validation.Clients.Denied > 0 || r.Limit.Rate() < 1./60 {
		t.Errorf("%v denies %d", r.Limit, r.Whole.Clients.Denied)
	}
	b := blocks{start: 5, length: 10}
	for micros, want := range map[int64]int64{5: 5, 14: 14, 25: 15, 34: 24, 45: 25} {
		if got, ok := b.when(micros, training); got != want || !ok {
			t.Errorf("training: %d is at %d, want %d", micros, got, want)
		}
		if got, ok := b.when(micros+10, validation); got != want || !ok {
			t.Errorf("validation: %d is at %d, want %d", micros+10, got, want)
		}
		if _, ok := b.when(micros, validation); ok {
			t.Errorf("%d trains and validates", micros)
		}
	}
}
