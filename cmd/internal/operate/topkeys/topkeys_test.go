package topkeys_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/sluiceproject/sluice/cmd/internal/operate/topkeys"
)

// While all keys fit, counts are exact. The most frequent key comes first.
func TestExactWhileAllFit(t *testing.T) {
	s := topkeys.New(10)
	for i := range 5 {
		for range i {
			s.Add("posts", fmt.Sprint("user ", i), 1)
		}
	}
	s.Add("logins", "user 4", 100) // the same key of another rule
	s.Add("user 4", "logins", 50)
	s.Add("posts", "nobody", 0)
	want := []topkeys.Entry{
		{Rule: "logins", Key: "user 4", Count: 100},
		{Rule: "user 4", Key: "logins", Count: 50},
		{Rule: "posts", Key: "user 4", Count: 4},
		{Rule: "posts", Key: "user 3", Count: 3},
		{Rule: "posts", Key: "user 2", Count: 2},
		{Rule: "posts", Key: "user 1", Count: 1},
	}
	if got := s.Top(100); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := s.Top(2); fmt.Sprint(got) != fmt.Sprint(want[:2]) {
		t.Errorf("the first two are %v", got)
	}
	if got := s.Top(-1); len(got) != 0 {
		t.Errorf("the first -1 are %v", got)
	}
	s.Reset()
	if got := s.Top(100); len(got) != 0 {
		t.Errorf("after Reset the sketch contains %v", got)
	}
}

// exact counts without bounds on memory, with the same decay as the sketch.
type exact struct {
	began   time.Time
	minutes int
	counts  map[string]float64
}

func (x *exact) fade() {
	for ; x.minutes < int(time.Since(x.began)/topkeys.HalfLife); x.minutes++ {
		for k := range x.counts {
			x.counts[k] /= 2
		}
	}
}

func (x *exact) total() (sum float64) {
	for _, n := range x.counts {
		sum += n
	}
	return sum
}

// check compares a sketch with the true counts: no count is off by more than its error, no error is larger than 1/size of
// all counts, and no key with more than that is missing.
func (x *exact) check(t *testing.T, s *topkeys.Sketch, size int) {
	t.Helper()
	x.fade()
	bound := x.total() / float64(size)
	kept := map[string]bool{}
	for _, e := range s.Top(math.MaxInt) {
		truth := x.counts[e.Key]
		if kept[e.Key] {
			t.Errorf("%s is listed twice", e.Key)
		}
		kept[e.Key] = true
		if truth > float64(e.Count) || truth < float64(e.Count-e.Error) {
			t.Errorf("%s has a count of %v, not from %d to %d", e.Key, truth, e.Count-e.Error, e.Count)
		}
		if float64(e.Error) > bound+2 { // counts are rounded to integers
			t.Errorf("%s has an error of %d with a total of %v", e.Key, e.Error, x.total())
		}
	}
	for k, n := range x.counts {
		if n > bound && n >= 1 && !kept[k] {
			t.Errorf("%s is missing: its count is %v of %v, and the size is %d", k, n, x.total(), size)
		}
	}
	if len(kept) > 8*size {
		t.Errorf("the sketch contains %d keys", len(kept))
	}
}

// With Zipf-distributed keys of any skew and pauses of any length, the error bound holds.
func TestErrorBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(100) {
			random := rand.New(rand.NewPCG(seed, 1))
			size := 1 + random.IntN(40)
			zipf := rand.NewZipf(random, 1.01+1.5*random.Float64(), 1, 5000)
			s := topkeys.New(size)
			x := &exact{began: time.Now(), counts: map[string]float64{}}
			for range 1 + random.IntN(4) {
				for range random.IntN(2000) {
					key, n := fmt.Sprint(zipf.Uint64()), 1+random.Int64N(3)
					s.Add("rule", key, n)
					x.counts[key] += float64(n)
				}
				x.check(t, s, size)
				<-time.After(time.Duration(1+random.IntN(400)) * time.Second)
				x.fade()
			}
			x.check(t, s, size)
			if t.Failed() {
				t.Fatalf("seed %d, size %d", seed, size)
			}
		}
	})
}

// Counts are halved every minute until they are 0.
func TestFade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := topkeys.New(4)
		s.Add("r", "k", 100)
		for _, step := range []struct {
			after time.Duration
			want  int64
		}{{59 * time.Second, 100}, {time.Second, 50}, {time.Minute, 25}, {time.Minute, 13}, {3 * time.Minute, 2}, {time.Minute, 1}} {
			<-time.After(step.after)
			if got := s.Top(1); len(got) != 1 || got[0].Count != step.want {
				t.Errorf("after %v: %v, want %d", step.after, got, step.want)
			}
		}
		s.Add("r", "k", 10)
		<-time.After(24 * time.Hour)
		if got := s.Top(1); len(got) != 0 {
			t.Errorf("after a day the sketch contains %v", got)
		}
		s.Add("r", "k", 7)
		if got := s.Top(1); len(got) != 1 || got[0].Count-got[0].Error > 7 || got[0].Count < 7 || got[0].Count > 8 {
			t.Errorf("after it is added again: %v", got)
		}
	})
}

// A frequent key is found among many keys that occur once, and memory does not grow.
func TestManyKeys(t *testing.T) {
	n := 100_000
	if os.Getenv("SLUICE_SOAK") != "" {
		n = 1_000_000
	}
	s := topkeys.New(100)
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := used()
	long := strings.Repeat("x", 10*topkeys.MaxKey)
	for i := range n {
		s.Add("flood", fmt.Sprint(i), 1)
		if i%50 == 0 {
			s.Add("flood", "the heavy one", 1)
			s.Add("flood", fmt.Sprint(i, long), 1)
		}
	}
	after := used()
	if got := s.Top(1); len(got) != 1 || got[0].Key != "the heavy one" || got[0].Count < int64(n/50) {
		t.Errorf("the most frequent is %v", got)
	}
	if most := uint64(8 * 100 * (topkeys.MaxKey + 512)); after > before+most {
		t.Errorf("the sketch takes %d bytes, want at most %d", after-before, most)
	}
	if got := len(s.Top(math.MaxInt)); got != 800 {
		t.Errorf("the sketch contains %d keys", got)
	}
	runtime.KeepAlive(s)
}

// Only the beginning of a long key is stored, but the whole key is counted.
func TestLongKeys(t *testing.T) {
	s := topkeys.New(10)
	long := strings.Repeat("x", topkeys.MaxKey)
	s.Add("r", long+"a", 2)
	s.Add("r", long+"b", 1)
	got := s.Top(10)
	if len(got) != 2 || got[0].Key != long || got[1].Key != long || got[0].Count != 2 || got[1].Count != 1 {
		t.Errorf("got %d keys", len(got))
	}
}

// Keys are copied, because callers reuse their memory.
func TestKeysAreCopied(t *testing.T) {
	s := topkeys.New(10)
	rule, key := []byte("rule"), []byte("key")
	s.Add(unsafe.String(&rule[0], len(rule)), unsafe.String(&key[0], len(key)), 1)
	copy(rule, "XXXX")
	copy(key, "XXX")
	if got := s.Top(1); fmt.Sprint(got) != "[{rule key 1 0}]" {
		t.Errorf("got %v", got)
	}
}

func TestAllocations(t *testing.T) {
	s := topkeys.New(10)
	s.Add("rule", "key", 1)
	if n := testing.AllocsPerRun(1000, func() { s.Add("rule", "key", 1) }); n != 0 {
		t.Errorf("adding a key of the sketch costs %v allocations", n)
	}
}

// No count is lost with concurrent calls of Add and Top.
func TestTogether(t *testing.T) {
	s := topkeys.New(20)
	var adding, looking sync.WaitGroup
	done := make(chan struct{})
	looking.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				s.Top(3)
			}
		}
	})
	const each = 2000
	for range 8 {
		adding.Go(func() {
			for i := range each {
				s.Add("r", fmt.Sprint(i%10), 1)
			}
		})
	}
	adding.Wait()
	close(done)
	looking.Wait()
	for _, e := range s.Top(100) {
		if e.Count != 8*each/10 || e.Error != 0 {
			t.Errorf("%s has %d, error %d", e.Key, e.Count, e.Error)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	keys := make([]string, 4096)
	for i := range keys {
		keys[i] = fmt.Sprintf("user-%d", i)
	}
	for _, c := range []struct {
		name string
		of   int
	}{{"one key", 1}, {"100 keys", 100}, {"4096 keys of which 100 are kept", 4096}} {
		b.Run(c.name, func(b *testing.B) {
			s := topkeys.New(100)
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for i := rand.IntN(c.of); p.Next(); i++ {
					s.Add("rule", keys[i%c.of], 1)
				}
			})
			if got := s.Top(1); len(got) != 1 {
				b.Fatal("nothing was counted")
			}
		})
	}
}
