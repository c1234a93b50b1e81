package redisstore_test

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/storetest"
)

// process is one of several processes that share a server, with its own store and rule.
type process struct {
	*sluice.Limiter
	store *redisstore.Store
	rule  *sluice.Rule
}

func startProcess(t testing.TB, c redisstore.Config, limit sluice.Limit) process {
	t.Helper()
	p := process{store: open(t, c), rule: sluice.Must(sluice.NewRule(sluice.Rule{Name: "api", Limit: limit, OnFailure: sluice.FailClosed}))}
	p.Limiter = sluice.Must(sluice.NewWithRules(p.store, []*sluice.Rule{p.rule}))
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

func (p process) take(t testing.TB, key string, cost int64) sluice.Decision {
	t.Helper()
	return apply(t, p.store, sluice.Take{Rule: p.rule, Key: key, Cost: cost})[0]
}

// TestNumbersBetweenProcesses checks that a process with other limit parameters of a rule continues from the used share
// of the bucket, also that of processes of which it only has the records, and that these processes do the same with its
// states.
func TestNumbersBetweenProcesses(t *testing.T) {
	for _, c := range []struct {
		name         string
		old, changed sluice.Limit
		spend        int64
		left, after  int64 // under the changed limit, and under the old one after taking 1 more there
	}{
		{"10/min to 10/day", sluice.PerMinute(10), sluice.PerDay(10), 4, 6, 5},
		{"100/min to 10/min", sluice.PerMinute(100), sluice.PerMinute(10), 50, 5, 40},
		{"burst 10 to 20", sluice.PerMinute(10), sluice.PerMinute(10).WithBurst(20), 4, 12, 5},
		{"7/min to 11/s", sluice.PerMinute(7).WithBurst(70), sluice.PerSecond(11).WithBurst(110), 7, 99, 62},
		{
			"intervals",
			sluice.Limit{Count: 4, Window: 10 * time.Second, Burst: 8, Refill: sluice.RefillInterval},
			sluice.Limit{Count: 4, Window: time.Minute, Burst: 4, Refill: sluice.RefillInterval},
			4, 2, 2,
		},
		{"counters", sluice.PerMinute(10).WithAlgorithm(sluice.SlidingWindowCounter), sluice.PerDay(10).WithAlgorithm(sluice.SlidingWindowCounter), 4, 6, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, clock := redistest.Start(t), storetest.NewClock()
			config := redisstore.Config{URL: server.URL(), Now: clock.Now}
			old := startProcess(t, config, c.old)
			old.take(t, "k", c.spend)
			changed := startProcess(t, config, c.changed)
			if d := changed.take(t, "k", 0); d.Remaining != c.left {
				t.Errorf("Remaining is %d under the changed limit, want %d", d.Remaining, c.left)
			}
			changed.take(t, "k", 1)
			if d := old.take(t, "k", 0); d.Remaining != c.after {
				t.Errorf("Remaining is %d under the old limit, want %d", d.Remaining, c.after)
			}
		})
	}
}

// TestGroupOfChangedNumbers checks that takes of several limits that have all changed are charged all or none.
func TestGroupOfChangedNumbers(t *testing.T) {
	server, clock := redistest.Start(t), storetest.NewClock()
	store, other := open(t, redisstore.Config{URL: server.URL(), Now: clock.Now}), open(t, redisstore.Config{URL: server.URL(), Now: clock.Now})
	rule := func(name string, limit sluice.Limit) *sluice.Rule {
		return sluice.Must(sluice.NewRule(sluice.Rule{Name: name, Limit: limit}))
	}
	oldA, oldB := rule("a", sluice.PerMinute(10)), rule("b", sluice.PerHour(10))
	apply(t, store, sluice.Take{Rule: oldA, Key: "k", Cost: 4}, sluice.Take{Rule: oldB, Key: "k", Cost: 9})
	newA, newB := rule("a", sluice.PerDay(20)), rule("b", sluice.PerDay(20))
	group := func(cost int64) []sluice.Decision {
		return apply(t, other, sluice.Take{Rule: newA, Key: "k", Cost: cost}, sluice.Take{Rule: newB, Key: "k", Cost: cost})
	}
	if out := group(3); !out[0].Allowed || out[1].Allowed || out[0].Remaining != 12 || out[1].Remaining != 2 {
		t.Errorf("group of cost 3 with 12 and 2 remaining: %+v", out)
	}
	if out := group(2); !out[0].Allowed || !out[1].Allowed || out[0].Remaining != 10 || out[1].Remaining != 0 {
		t.Errorf("group of cost 2 with 12 and 2 remaining: %+v", out)
	}
}

// TestNumbersUnknown checks that a state whose limit parameters are unknown counts as fully used, without a negative
// balance. Limits that cannot be recorded are decided all the same.
func TestNumbersUnknown(t *testing.T) {
	server, clock := redistest.Start(t), storetest.NewClock()
	config := redisstore.Config{URL: server.URL(), Now: clock.Now}
	old := startProcess(t, config, sluice.PerMinute(10))
	old.take(t, "k", 1)
	do(t, server, "DEL", record(t, server))
	changed := startProcess(t, config, sluice.PerHour(60))
	if d := changed.take(t, "k", 1); d.Allowed || d.Remaining != 0 || d.RetryAfter != time.Minute || d.ResetAfter != time.Hour {
		t.Errorf("unknown limit parameters: %+v", d)
	}
	if d := changed.take(t, "other", 1); !d.Allowed || d.Remaining != 59 {
		t.Errorf("another key: %+v", d)
	}
	// The old process records its parameters again when it finds unknown ones.
	if d := old.take(t, "other", 0); d.Remaining != 9 {
		t.Errorf("Remaining is %d of 10 after 1 of 60", d.Remaining)
	}
	if got := strings.Fields(do(t, server, "ZRANGE", record(t, server), "0", "-1")); len(got) != 2 {
		t.Errorf("recorded: %q", got)
	}

	do(t, server, "FLUSHALL")
	do(t, server, "ACL", "SETUSER", "narrow", "on", ">secret", "~*", "+@all", "-zrange", "-zadd")
	config.URL = "redis://narrow:secret@" + server.Addr
	if d := startProcess(t, config, sluice.PerMinute(10)).take(t, "k", 4); !d.Allowed || d.Remaining != 6 {
		t.Errorf("without a record: %+v", d)
	}
	if d := startProcess(t, config, sluice.PerHour(10)).take(t, "k", 1); d.Allowed || d.Remaining != 0 {
		t.Errorf("without a record, other limit parameters: %+v", d)
	}
}

// record returns the key of the only record of limit parameters on the server.
func record(t testing.TB, server *redistest.Server) string {
	t.Helper()
	all := strings.Fields(do(t, server, "KEYS", "sluice:1n*"))
	if len(all) != 1 {
		t.Fatalf("records: %q", all)
	}
	return all[0]
}

// TestRecordOfNumbers checks that a record has the most recent limit parameters of a rule, and a TTL.
func TestRecordOfNumbers(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redisstore.Config{URL: server.URL()})
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "api", Limit: sluice.PerMinute(1)}))
	for n := range int64(80) { // some share a shape
		apply(t, store, sluice.Take{Rule: rule, Limit: sluice.Must(sluice.PerHour(1000 + n).Build()), Key: fmt.Sprint(n), Cost: 1})
	}
	stored := strings.Fields(do(t, server, "ZRANGE", record(t, server), "0", "-1"))
	if len(stored) != 32 || stored[0] <= "1:0:1000:3600000000:1000" {
		t.Errorf("%d are recorded: %q", len(stored), stored)
	}
	ms, err := strconv.ParseInt(do(t, server, "PTTL", record(t, server)), 10, 64)
	if days := ms / (24 * 3600 * 1000); err != nil || days < 399 || days > 400 {
		t.Errorf("TTL of %d ms: %v", ms, err)
	}
	if page, err := store.List(context.Background(), sluice.ListOptions{}); err != nil || len(page.Buckets) != 80 {
		t.Errorf("%d buckets listed, want 80: %v", len(page.Buckets), err)
	}
	// Invalid entries of a record are ignored.
	do(t, server, "ZADD", record(t, server), "1", "x", "1", "1:0:0:0:0", "2", "9:9:9:9:9", "3", "1:0:99999999999999999:60000000:7", "4", "-1:1:1:1:1")
	if d := startProcess(t, redisstore.Config{URL: server.URL()}, sluice.PerDay(7)).take(t, "k", 1); !d.Allowed {
		t.Errorf("with a damaged record: %+v", d)
	}
}

// TestRecordAfterRestart checks that running processes record their limit parameters again at a server that restarts
// empty.
func TestRecordAfterRestart(t *testing.T) {
	server, clock := redistest.Start(t), storetest.NewClock()
	config := redisstore.Config{URL: server.URL(), Now: clock.Now}
	startProcess(t, config, sluice.PerDay(10)).take(t, "k", 1)
	old := startProcess(t, config, sluice.PerMinute(10))
	old.take(t, "k", 1)
	server.Kill()
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	take := func() error {
		return old.store.Apply(ctx, []sluice.Take{{Rule: old.rule, Key: "k"}}, make([]sluice.Decision, 1))
	}
	for take() != nil && ctx.Err() == nil { // the connection is lost and reopened
	}
	if err := take(); err != nil {
		t.Fatal(err)
	}
	stored := strings.Fields(do(t, server, "ZRANGE", record(t, server), "0", "-1"))
	slices.Sort(stored)
	if want := []string{"1:0:10:60000000:10", "1:0:10:86400000000:10"}; !slices.Equal(stored, want) {
		t.Errorf("recorded: %q, want %q", stored, want)
	}
}

// TestUnchangedCommands checks that a decision costs one run of the script with one TIME, one read and one write, as
// long as nothing changes.
func TestUnchangedCommands(t *testing.T) {
	server := redistest.Start(t)
	p := startProcess(t, redisstore.Config{URL: server.URL()}, sluice.PerHour(3_600_000))
	for range 3 { // which also records the limit parameters and requests the run ID
		p.take(t, "k", 1)
	}
	do(t, server, "CONFIG", "RESETSTAT")
	for range 100 {
		p.take(t, "k", 1)
	}
	calls := map[string]int{}
	for line := range strings.Lines(do(t, server, "INFO", "commandstats")) {
		name, stats, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		n, _, _ := strings.Cut(stats, ",")
		if count, err := strconv.Atoi(n); found && err == nil {
			calls[name] = count
		}
	}
	// A bucket's TTL is renewed every 17 s, and the run ID is requested once per second; both may happen here.
	if calls["evalsha"] != 100 || calls["time"] != 100 || calls["mget"] != 100 || calls["incrby"]+calls["set"] != 100 || calls["set"] > 3 {
		t.Errorf("%v", calls)
	}
	for _, name := range []string{"zrange", "zadd", "pexpire", "zremrangebyrank", "script|load", "eval"} {
		if calls[name] > 0 {
			t.Errorf("%s: executed %d times", name, calls[name])
		}
	}
}

// TestAlternatingNumbers: processes with different limit parameters of one rule convert each other's states back and
// forth. The used share must never decrease, and must increase by at most one microsecond's worth per conversion.
func TestAlternatingNumbers(t *testing.T) {
	server := redistest.Shared(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 12 {
		clock := storetest.NewClock()
		config := redisstore.Config{URL: server.URL(), Now: clock.Now, KeyPrefix: prefix()}
		var processes []process
		shapes := map[uint8]bool{} // by chance one in 98 is shared
		for len(processes) < 2+round%3 {
			count := 1 + rng.Int64N(500)
			limit := sluice.Per(count, time.Duration(1+rng.Int64N(100_000))*time.Millisecond).WithBurst(1 + rng.Int64N(2*count))
			if shape := private.ParamsOf(sluice.Must(limit.Build())).Shape(); !shapes[shape] {
				shapes[shape] = true
				processes = append(processes, startProcess(t, config, limit))
			}
		}
		used, most := new(big.Rat), new(big.Rat) // used shares of the bucket: minimum and maximum
		var last *sluice.Limit
		for range 150 {
			p := processes[rng.IntN(len(processes))]
			pause := time.Duration(rng.Int64N(20_000)) * time.Microsecond
			clock.Advance(pause)
			part := func(d time.Duration, l *sluice.Limit) *big.Rat { // share of the time that fills it
				return new(big.Rat).Mul(big.NewRat(d.Microseconds(), l.Window.Microseconds()), big.NewRat(l.Count, l.Burst))
			}
			if last != nil {
				for _, u := range []*big.Rat{used, most} {
					if u.Sub(u, part(pause, last)); u.Sign() < 0 {
						u.SetInt64(0)
					}
				}
			}
			last = &p.rule.Limit
			if most.Sign() > 0 {
				most.Add(most, part(time.Microsecond, last))
			}
			d := p.take(t, "k", 1+rng.Int64N(last.Burst))
			spent := big.NewRat(d.Granted, last.Burst)
			used.Add(used, spent)
			most.Add(most, spent)
			left := func(u *big.Rat) int64 { // in whole tokens
				r := new(big.Rat).Mul(new(big.Rat).Sub(big.NewRat(1, 1), u), big.NewRat(last.Burst, 1))
				if r.Sign() < 0 {
					return 0
				}
				return new(big.Int).Quo(r.Num(), r.Denom()).Int64()
			}
			if d.Remaining > left(used) || d.Remaining < left(most) {
				t.Fatalf("round %d: Remaining is %d of %d under %v, want %d to %d", round, d.Remaining, last.Burst, last, left(most), left(used))
			}
		}
	}
}

// TestRollingRestart replaces processes one by one by others with 10 % of the limit. All together may be admitted one
// bucket, measured in shares of it, plus the refill during the test.
func TestRollingRestart(t *testing.T) {
	const old, changed = 5000, 500
	if url := os.Getenv("SLUICE_TEST_ROLLING"); url != "" {
		limit, requests := envNumber(t, "SLUICE_TEST_LIMIT"), envNumber(t, "SLUICE_TEST_REQUESTS")
		p := startProcess(t, redisstore.Config{URL: url}, sluice.PerHour(limit))
		granted := int64(0)
		for range requests {
			granted += p.take(t, "k", 1).Granted
		}
		fmt.Printf("granted %d\n", granted)
		return
	}
	server := redistest.Start(t)
	run := func(limit, requests int) float64 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRollingRestart$", "-test.v")
		cmd.Env = append(os.Environ(), "SLUICE_TEST_ROLLING="+server.URL(),
			"SLUICE_TEST_LIMIT="+strconv.Itoa(limit), "SLUICE_TEST_REQUESTS="+strconv.Itoa(requests))
		out, err := cmd.CombinedOutput()
		_, count, _ := strings.Cut(string(out), "granted ")
		n, bad := strconv.Atoi(strings.Fields(count + " -")[0])
		if err != nil || bad != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return float64(n) / float64(limit)
	}
	began := time.Now()
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		used = map[int]float64{}
	)
	for i := range 4 {
		all.Go(func() {
			for _, limit := range [][2]int{{old, 300 * (i + 1)}, {changed, 400}} { // the old processes use 60 % of the bucket, the others the rest
				part := run(limit[0], limit[1])
				mu.Lock()
				used[limit[0]] += part
				mu.Unlock()
			}
		})
	}
	all.Wait()
	flown := float64(time.Since(began)) / float64(time.Hour)
	sum := used[old] + used[changed]
	t.Logf("share of the bucket: %.4f by the old processes, %.4f by the changed ones; %.4f refilled", used[old], used[changed], flown)
	if sum > 1+flown || sum < 0.99 || used[old] == 0 || used[changed] == 0 {
		t.Errorf("admitted %.4f of the bucket, want 1 to %.4f", sum, 1+flown)
	}
}

func envNumber(t testing.TB, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(os.Getenv(name), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
