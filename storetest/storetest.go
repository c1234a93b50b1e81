package storetest

import (
	"embed"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"
	_ "time/tzdata" // transcripts have time zones, wherever they run

	"github.com/sluiceproject/sluice"
)

// Harness is a store under test.
type Harness struct {
	// Open returns an empty store that takes its time from the clock. It is called many times in one test; what it
	// opens it closes with t.Cleanup.
	Open func(t testing.TB, clock *Clock) sluice.Store
	// Caps says what the store does not promise. The zero Caps promises everything.
	Caps Caps
}

// Caps declares a weaker guarantee, so that it is checked as what it is instead of being skipped.
type Caps struct {
	// RealClock: the store has a clock of its own and cannot be given another. Only what needs no time to pass is
	// checked: exactness, keys, contexts, all or nothing, IDs, linearizability.
	RealClock bool
	// NonAtomicKeys: the takes of one call are applied bucket by bucket and given back if one is denied, as on Memcached
	// or across the slots of a cluster. In between too much may be counted, never too little.
	NonAtomicKeys bool
	// Overshoot is how much more than a limit may be admitted when callers come at the same time.
	Overshoot int64
	// NoIdempotency: a take that arrives twice is charged twice.
	NoIdempotency bool
	// NoAdmin: the store is no sluice.StoreAdmin; it cannot reset or block.
	NoAdmin bool
}

// Run holds a store to everything it has not declared.
func Run(t *testing.T, h Harness) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			if why := c.missing(h.Caps); why != "" {
				t.Log("not promised:", why)
				return
			}
			t.Parallel()
			if err := c.run(h.opener(t)); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("Properties", func(t *testing.T) {
		made := check{needs: need{clock: true, exact: true, whole: true}}
		if why := made.missing(h.Caps); why != "" {
			t.Log("not promised:", why)
			return
		}
		t.Parallel()
		properties(t, h)
	})
}

// check is one thing that stores are held to. It returns an error, and does not fail a test, so that it can be tried
// on stores which are broken in known ways.
type check struct {
	name  string
	run   func(o *opener) error
	needs need
}

// need is what a check cannot do without.
type need struct{ clock, ids, keys, exact, whole bool }

// missing says what the check needs and the store has declared not to have.
func (c *check) missing(caps Caps) string {
	switch {
	case c.needs.clock && caps.RealClock:
		return "a clock of the test's"
	case c.needs.ids && caps.NoIdempotency:
		return "IDs"
	case c.needs.keys && caps.NoAdmin:
		return "resets and blocks"
	case c.needs.exact && caps.Overshoot > 0:
		return "exactness"
	case c.needs.whole && caps.NonAtomicKeys:
		return "calls that are seen whole"
	}
	return ""
}

func checks() []check {
	all := []check{
		{"History", randomHistories, need{clock: true, ids: true, keys: true, exact: true, whole: true}},
		{"SubSecond", subSecond, need{clock: true}},
		{"OddNames", oddNames, need{}},
		{"Isolated", isolated, need{clock: true}},
		{"Forgets", forgets, need{clock: true}},
		{"KeepsUntil", keepsUntil, need{clock: true}},
		{"Cancelled", cancelled, need{}},
		{"OddCalls", oddCalls, need{}},
		{"Transfer", transfer, need{}},
		{"AllOrNothing", allOrNothing, need{}},
		{"OnceByID", onceByID, need{ids: true}},
		{"Buckets", buckets, need{keys: true}},
	}
	for _, a := range algorithms {
		all = append(all,
			check{"Exact/" + a.name, exact(a), need{}},
			check{"ExactMoving/" + a.name, exactMoving(a), need{clock: true}},
			check{"SteppedClock/" + a.name, steppedClock(a), need{clock: true}},
			check{"RetryHonest/" + a.name, retryHonest(a), need{clock: true}},
			check{"RemainingAdds/" + a.name, remainingAdds(a), need{}},
		)
		switch a.name {
		case "fixed_window", "token_bucket", "sliding_log", "sliding_counter":
			all = append(all, check{"NoRace/" + a.name, noRace(a), need{}})
		}
		if a.name == "fixed_window" || a.name == "token_bucket" {
			// A bucket is a counter only on a clock that stands still.
			all = append(all, check{"Linearizable/" + a.name, linearizable(a), need{exact: true, clock: a.name == "token_bucket"}})
		}
	}
	all = append(all, check{"RetryHonest/" + soft.name, retryHonest(soft), need{clock: true}})
	all = append(all, permitChecks()...)
	all = append(all, settleChecks()...)
	all = append(all, changeChecks()...)
	for _, d := range peerDefects {
		all = append(all, check{"PeerDefects/" + d.name, d.run, need{clock: true}})
	}
	return append(all, transcriptChecks()...)
}

//go:embed testdata/*.txt
var testdata embed.FS

// transcriptChecks are the text files, once through Apply and once through a limiter where a take is plain.
func transcriptChecks() []check {
	entries, err := testdata.ReadDir("testdata")
	if err != nil {
		panic(err) // they are compiled in
	}
	var all []check
	for _, e := range entries {
		file := path.Join("testdata", e.Name())
		name := strings.TrimSuffix(e.Name(), ".txt")
		needs := need{clock: true, keys: name == "blocks" || name == "concurrency" || name == "give_back" || name == "ids", ids: name == "ids"}
		all = append(all, check{"Transcripts/" + name, func(o *opener) error { return runTranscript(o, file) }, needs})
	}
	return all
}

func runTranscript(o *opener, file string) error {
	text, err := testdata.ReadFile(file)
	if err != nil {
		return err
	}
	script, err := parseTranscript(file, string(text))
	if err != nil {
		return err
	}
	for _, plain := range []bool{false, true} {
		store, clock := o.store()
		if err := script.run(newTeller(store, clock, plain)); err != nil {
			if plain {
				return fmt.Errorf("through a limiter: %w", err)
			}
			return err
		}
	}
	return nil
}

// opener opens stores for a check.
type opener struct {
	caps Caps
	open func(clock *Clock) sluice.Store
}

func (h Harness) opener(t testing.TB) *opener {
	return &opener{h.Caps, func(clock *Clock) sluice.Store { return h.Open(t, clock) }}
}

func (o *opener) store() (sluice.Store, *Clock) {
	clock := NewClock()
	store := o.open(clock)
	if _, ok := store.(sluice.RemoteStore); ok {
		if keys, ok := store.(sluice.StoreAdmin); ok {
			return bare{store, keys}, clock
		}
		return struct{ sluice.Store }{store}, clock
	}
	return store, clock
}

// bare is a store without the mark of one that asks servers: a limiter would answer for it, from what it remembers and
// by a clock that is not the test's, and it is the store that is tested.
type bare struct {
	sluice.Store
	sluice.StoreAdmin
}

func (o *opener) probe() *probe {
	store, clock := o.store()
	return &probe{store: store, clock: clock}
}

// soak tells that a long run is wanted.
func soak() bool { return os.Getenv("SLUICE_SOAK") != "" }
