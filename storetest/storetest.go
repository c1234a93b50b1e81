package storetest

import (
	"embed"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"
	_ "time/tzdata" // transcripts use time zones, which the system may lack

	"github.com/sluiceproject/sluice"
)

// Harness describes a store under test.
type Harness struct {
	// Open returns an empty store that uses the clock. It is called many times in one test, and must close the store
	// with t.Cleanup.
	Open func(t testing.TB, clock *Clock) sluice.Store
	// Caps declares weaker guarantees. The zero Caps declares none: everything is checked.
	Caps Caps
}

// Caps declares the weaker guarantees of a store, so that these are checked instead of the full ones.
type Caps struct {
	// RealClock declares that the store has its own clock and cannot use another. Only checks that need no time to pass
	// run: exactness, keys, contexts, all or nothing, idempotency, linearizability.
	RealClock bool
	// NonAtomicKeys declares that the takes of one call are applied bucket by bucket and refunded if one is denied, as
	// on Memcached or across the hash slots of a Redis Cluster. In between usage may be too high, never too low.
	NonAtomicKeys bool
	// Overshoot is how much more than the limit concurrent callers may be admitted.
	Overshoot int64
	// NoIdempotency declares that idempotency IDs are ignored: a take that arrives twice is charged twice.
	NoIdempotency bool
	// NoAdmin declares that the store does not implement sluice.StoreAdmin: it cannot reset or block.
	NoAdmin bool
}

// Run runs the suite on a store, as subtests of t. It leaves out the checks that the Caps of the harness exclude.
func Run(t *testing.T, h Harness) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			if why := c.missing(h.Caps); why != "" {
				t.Log("not guaranteed by the store:", why)
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
			t.Log("not guaranteed by the store:", why)
			return
		}
		t.Parallel()
		properties(t, h)
	})
}

// check is one check of a store. It returns an error instead of failing a test, so that it can be tested on stores with
// known defects.
type check struct {
	name  string
	run   func(o *opener) error
	needs need
}

// need lists the guarantees that a check requires.
type need struct{ clock, ids, keys, exact, whole bool }

// missing returns the guarantee that the check requires and the store does not have, or "".
func (c *check) missing(caps Caps) string {
	switch {
	case c.needs.clock && caps.RealClock:
		return "a virtual clock"
	case c.needs.ids && caps.NoIdempotency:
		return "idempotency"
	case c.needs.keys && caps.NoAdmin:
		return "resets and blocks"
	case c.needs.exact && caps.Overshoot > 0:
		return "exactness"
	case c.needs.whole && caps.NonAtomicKeys:
		return "atomic calls on several keys"
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

// transcriptChecks returns a check for each transcript, which runs it through Apply and, for ordinary takes, through a
// limiter.
func transcriptChecks() []check {
	entries, err := testdata.ReadDir("testdata")
	if err != nil {
		panic(err) // the files are compiled in
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

// bare hides that a store is a RemoteStore. Otherwise a limiter would make decisions instead of the store, from its
// deny cache and on a clock that is not the test's.
type bare struct {
	sluice.Store
	sluice.StoreAdmin
}

func (o *opener) probe() *probe {
	store, clock := o.store()
	return &probe{store: store, clock: clock}
}

// soak reports whether the environment requests long runs.
func soak() bool { return os.Getenv("SLUICE_SOAK") != "" }
