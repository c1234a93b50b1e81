package recommend

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
)

// deny is a configuration for all tests that need no other.
var deny = Config{For: Deny, Untouched: 999_000, Name: "recommended", Per: []string{"ip"}, Resolution: time.Second}

// deniedAt replays all requests through the limiter and returns the number of denied ones.
func deniedAt(t testing.TB, traffic *Traffic, l sluice.Limit) (denied int64) {
	t.Helper()
	done, err := traffic.replay(context.Background(), l, traffic.recorded)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range done.denied {
		denied += n
	}
	return denied
}

// The bursts are those of a published analysis of the trace. At the burst nothing is denied, and at one less something is.
func TestTokensOfLanguageModel(t *testing.T) {
	traffic := tokens(t, false)
	for _, want := range []struct {
		rate    string
		burst   int64
		backlog string
	}{{"5.6/s", 1591, "1590.14"}, {"7/s", 359, "358.81"}, {"8/s", 50, "49.70"}, {"10/s", 15, "14.38"}} {
		rate, err := ParseRate(want.rate)
		if err != nil {
			t.Fatal(err)
		}
		r, err := traffic.Recommend(t.Context(), Config{For: Deny, Untouched: 999_000, Name: "all", Rates: []Rate{rate}})
		if err != nil {
			t.Fatal(err)
		}
		p := r.Frontier[0]
		if got := fmt.Sprintf("%.2f", p.WholeBacklog); p.WholeBurst != want.burst || got != want.backlog {
			t.Errorf("%s: burst %d of backlog %s, want %d of %s", want.rate, p.WholeBurst, got, want.burst, want.backlog)
		}
		if n := deniedAt(t, traffic, rate.limit(want.burst)); n != 0 {
			t.Errorf("%s burst %d denies %d", want.rate, want.burst, n)
		}
		if n := deniedAt(t, traffic, rate.limit(want.burst-1)); n == 0 {
			t.Errorf("%s burst %d denies nothing", want.rate, want.burst-1)
		}
	}
}

// The smallest burst is that of a search by replay, for random traffic and rates.
func TestSmallestBurstByReplay(t *testing.T) {
	for seed := range uint64(80) {
		random := rand.New(rand.NewPCG(seed, 1))
		traffic := &Traffic{}
		now := int64(1_700_000_000_000_000)
		costs := random.IntN(2) == 1
		for range 1 + random.IntN(40) {
			now += int64(random.ExpFloat64() * math.Pow(10, float64(random.IntN(7))))
			a := Arrival{Micros: now, Cost: 1}
			if costs {
				a.Cost = 1 + random.Int64N(9)
			}
			traffic.Add(a)
		}
		traffic.group()
		rate := Rate{1 + random.Int64N(100), time.Duration(1+random.IntN(5000)) * time.Millisecond}
		b := newBacklog(rate)
		for _, i := range traffic.of(0) {
			b.add(traffic.micros[i], traffic.costOf(i))
		}
		least := int64(1)
		for deniedAt(t, traffic, rate.limit(least)) > 0 {
			least++
		}
		if b.burst() != least {
			t.Fatalf("seed %d: burst %d, by replay %d", seed, b.burst(), least)
		}
	}
}

// A rate of the rank curve denies nothing, and a slightly lower one does: by the definition over all intervals.
func TestNeededRates(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		traffic := &Traffic{}
		now := int64(0)
		for range 1 + random.IntN(30) {
			now += random.Int64N(2_000_000) * random.Int64N(2)
			traffic.Add(Arrival{Micros: now, Cost: 1 + random.Int64N(3)})
		}
		traffic.group()
		burst, want := 1+random.Int64N(20), 0.0
		for i := range traffic.micros {
			sum := int64(0)
			for j := i; j < len(traffic.micros); j++ {
				sum += traffic.costOf(uint32(j))
				if over := sum - burst; over > 0 {
					want = max(want, float64(over)/float64(traffic.micros[j]-traffic.micros[i])*1e6)
				}
			}
		}
		if got := traffic.needs(0, burst); got != want && math.Abs(got-want) > want*1e-9 {
			t.Fatalf("seed %d: burst %d needs %v/s, want %v/s", seed, burst, got, want)
		}
	}
}

// The permits that a key needs are those of a search by replay.
func TestSmallestConcurrencyByReplay(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 3))
		traffic := &Traffic{}
		now := int64(1_700_000_000_000_000)
		for range 1 + random.IntN(40) {
			now += random.Int64N(1_000_000)
			traffic.Add(Arrival{Micros: now, Duration: 1 + random.Int64N(5_000_000)})
		}
		traffic.group()
		var f flight
		for _, i := range traffic.of(0) {
			f.request(traffic.micros[i], 1, traffic.durationOf(i))
		}
		least := int64(1)
		for deniedAt(t, traffic, sluice.Concurrent(least).WithPermitTTL(time.Hour)) > 0 {
			least++
		}
		if f.need() != least {
			t.Fatalf("seed %d: %d permits, by replay %d", seed, f.need(), least)
		}
	}
}

// generatedFlood returns the traffic of generated addresses of 198.19.0.0/16 that send 150 to 400 requests a second for 3 to 8 s. It
// begins in training and validation blocks alike.
func generatedFlood(seed uint64, start int64) (all []Arrival) {
	random := rand.New(rand.NewPCG(seed, 4))
	for i := range 2 + random.IntN(30) {
		rate, seconds := 150+random.IntN(250), 3+random.IntN(5)
		from := start + random.Int64N(160)*1e6
		key := fmt.Sprintf("198.19.%d.%d", i/250, 1+i%250)
		for s := range seconds {
			for range rate {
				all = append(all, Arrival{Micros: from + int64(s)*1e6, Key: key, Cost: 1})
			}
		}
	}
	return all
}

// judged is how a limit treats the shop's clients, and addresses that sent more than 20 requests in a second, in the
// validation blocks.
type judged struct {
	clients, clientsDenied int
	requests, denied       int64 // of the addresses that sent more than 20 in a second
}

func judge(t *testing.T, traffic *Traffic, l sluice.Limit, block time.Duration) (j judged) {
	t.Helper()
	odd := func(i uint32) bool { return (traffic.micros[i]-traffic.micros[0])/block.Microseconds()%2 == 1 }
	done, err := traffic.replay(t.Context(), l, func(i uint32) (int64, bool) { return traffic.micros[i], odd(i) })
	if err != nil {
		t.Fatal(err)
	}
	perSecond := make(map[[2]int64]int)
	flooding := make([]bool, len(traffic.names))
	for i, k := range traffic.key {
		at := [2]int64{int64(k), traffic.micros[i] / 1e6}
		if perSecond[at]++; perSecond[at] > 20 && odd(uint32(i)) {
			flooding[k] = true
		}
	}
	for k, name := range traffic.names {
		switch {
		case flooding[k]:
			j.requests += done.requests[k]
			j.denied += done.denied[k]
		case name[:6] == "198.18" && !traffic.crawlers[k] && done.requests[k] > 0:
			j.clients++
			if done.denied[k] > 0 {
				j.clientsDenied++
			}
		}
	}
	return j
}

// holds reports whether no client is denied and 90 % of the flood is.
func (j judged) holds() bool {
	return j.clients > 20 && j.clientsDenied == 0 && 10*j.denied >= 9*j.requests
}

// A limit trained on the even 20-second blocks of a shop's traffic, mixed with a flood, denies none of the shop's clients in
// the odd blocks, and at least 90 % of the flood. The same limit times 100 does not.
func TestFloodDoesNotRaiseLimit(t *testing.T) {
	shop := accessLog(t, "shop-access.log")
	start := shop[0].Micros
	cases := map[string]*Traffic{
		"recorded flood in an odd block":  trafficOf(shop, moved(t, accessLog(t, "flood-access.log"), start+65e6)),
		"recorded flood in an even block": trafficOf(shop, moved(t, accessLog(t, "flood-access.log"), start+85e6)),
	}
	seeds := uint64(4)
	if os.Getenv("SLUICE_SOAK") != "" {
		seeds = 1000
	}
	for seed := range seeds {
		cases[fmt.Sprintf("generated flood %d", seed)] = trafficOf(shop, generatedFlood(seed, start))
	}
	floods := 0 // in the odd blocks
	for name, traffic := range cases {
		c := deny
		c.Block = 20 * time.Second
		r, err := traffic.Recommend(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		j := judge(t, traffic, r.Limit, r.Block)
		if !j.holds() {
			t.Errorf("%s: %v: %+v", name, r.Limit, j)
		}
		if r.Validation.Clients.KeysDenied != 0 {
			t.Errorf("%s: the report says %+v", name, r.Validation)
		}
		if j.requests > 0 {
			floods++
		}
		loose := r.Limit
		loose.Count, loose.Burst = 100*loose.Count, 100*loose.Burst
		if j := judge(t, traffic, loose, r.Block); j.requests > 0 && j.holds() {
			t.Errorf("%s: the limit times 100 is as good: %+v", name, j)
		}
	}
	if 10*floods < 8*len(cases) {
		t.Errorf("only %d of %d cases have a flood in the odd blocks", floods, len(cases))
	}
}

// Without a flood the recommendation is the same: it does not raise the limit.
func TestOutliersAreNamedAndMasked(t *testing.T) {
	shop := accessLog(t, "shop-access.log")
	clean, err := trafficOf(shop).Recommend(t.Context(), deny)
	if err != nil {
		t.Fatal(err)
	}
	c := deny
	c.Mask = func(key string) string { return key }
	flooded, err := trafficOf(shop, moved(t, accessLog(t, "flood-access.log"), shop[0].Micros+85e6)).Recommend(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if flooded.Limit != clean.Limit || len(clean.Outliers) > 0 {
		t.Errorf("%v with a flood, %v without; outliers %v", flooded.Limit, clean.Limit, clean.Outliers)
	}
	if len(flooded.Curves) != 6 || len(flooded.Top) != 50 || len(flooded.Top[0].Need) != 6 {
		t.Errorf("%d curves, %d top keys", len(flooded.Curves), len(flooded.Top))
	}
	for _, c := range flooded.Curves {
		rank, last := 0, math.Inf(1)
		for _, p := range c.Points {
			need := math.Inf(1)
			if rate := p[1].(*float64); rate != nil {
				need = *rate
			}
			if p[0].(int) <= rank || need > last {
				t.Fatalf("burst %d: rank %v needs %v, after rank %d with %v", c.Burst, p[0], need, rank, last)
			}
			rank, last = p[0].(int), need
		}
		if rank != flooded.Keys || len(c.Points) > 160 {
			t.Errorf("burst %d: %d points up to rank %d", c.Burst, len(c.Points), rank)
		}
	}
	var keys []string
	for _, o := range flooded.Outliers {
		keys = append(keys, o.Key)
	}
	if !slices.Equal(keys, []string{"198.19.0.2", "198.19.0.4", "198.19.0.3"}) {
		t.Errorf("outliers %v", keys)
	}
}
