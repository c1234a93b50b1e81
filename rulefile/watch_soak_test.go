package rulefile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

const (
	soakClients = 4
	soakUsers   = 20
	soakLimit   = 500 // of each user over the whole run
)

// TestReloadsUnderLoad changes the rules 1000 times, in all the ways in which files change, while requests are decided
// by them. One rule is in all valid versions, with changing descriptions and among changing others: no request may miss
// it, and its usage must survive. The last valid version must be live after each change, and each invalid one must be
// reported.
func TestReloadsUnderLoad(t *testing.T) {
	steps := 500
	if os.Getenv("SLUICE_SOAK") == "1" {
		steps = 10_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := newSoak(t, rand.New(rand.NewPCG(seed, 0)))
	traffic := newTraffic(t, s.watcher)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.watcher.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for range soakClients {
		running.Go(func() { traffic.run(ctx) })
	}
	for i := 0; i < steps && !t.Failed(); i++ {
		traffic.users.Store(1 + int64(soakUsers*i/steps))
		s.step()
	}
	stop()
	running.Wait()
	traffic.finish()
	t.Logf("%d sets loaded, %d refused, %d requests", len(s.loaded), s.refused, traffic.requests.Load())
	if n := s.watcher.Status().Reloads; !slices.Equal(s.loaded, s.wantLoaded) || n != len(s.loaded) {
		t.Errorf("loaded %d versions, by the status %d, want %d, or others or in another order",
			len(s.loaded), n, len(s.wantLoaded))
	}
	if s.refused != s.wantRefused {
		t.Errorf("%d errors were reported for %d bad versions", s.refused, s.wantRefused)
	}
}

// soak is a changing directory of rules: a.yaml, a link as in the volume of a config map, and b.yaml.
type soak struct {
	t       *testing.T
	rand    *rand.Rand
	dir     string
	watcher *Watcher
	version int
	onDisk  map[string]soakFile
	live    map[string]soakFile
	digest  string // of the live set

	// disk is held while files are read, and while they are written in steps that no reader may see separately: on a
	// busy machine the time between two steps may exceed the debounce time.
	disk      sync.Mutex
	otherHalf func() // writes the rest of a file, once half of it was read

	news        chan error // from OnError, and nil from OnReload
	loaded      []string   // digests
	refused     int
	wantLoaded  []string
	wantRefused int
}

type soakFile struct {
	text string
	good bool
}

func newSoak(t *testing.T, r *rand.Rand) *soak {
	s := &soak{
		t: t, rand: r, dir: filepath.Join(t.TempDir(), "rules"), news: make(chan error, 100),
		onDisk: make(map[string]soakFile), live: make(map[string]soakFile),
	}
	s.must(os.Mkdir(s.dir, 0o700))
	a, b := s.good("a.yaml"), s.good("b.yaml")
	s.swap(a.text)
	s.must(os.Symlink("..data/a.yaml", s.path("a.yaml")))
	s.overwrite("b.yaml", b.text)
	for _, files := range []map[string]soakFile{s.onDisk, s.live} {
		files["a.yaml"], files["b.yaml"] = a, b
	}
	w, err := NewWatcher(WatchConfig{
		Paths: []string{s.dir}, PollInterval: 100 * time.Millisecond, Debounce: time.Millisecond,
		OnReload: func(l *LoadResult) {
			s.loaded = append(s.loaded, l.Digest)
			s.news <- nil
		},
		OnError: func(err error) {
			s.refused++
			s.news <- err
		},
	})
	s.must(err)
	w.read = s.read
	s.watcher, s.digest = w, w.Current().Digest
	return s
}

func (s *soak) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *soak) path(name string) string { return filepath.Join(s.dir, name) }

func (s *soak) read(paths ...string) ([]File, error) {
	s.disk.Lock()
	defer s.disk.Unlock()
	sources, err := ReadFiles(paths...)
	if s.otherHalf != nil {
		s.otherHalf()
		s.otherHalf = nil
	}
	return sources, err
}

// step makes one change and checks its result.
func (s *soak) step() {
	if s.rand.IntN(50) == 0 {
		s.vanish()
		return
	}
	name := []string{"a.yaml", "b.yaml"}[s.rand.IntN(2)]
	var next soakFile
	switch n := s.rand.IntN(10); {
	case n < 6:
		next = s.good(name)
	case n < 8:
		next = s.bad()
	default:
		next = s.live[name]
	}
	changes := next != s.onDisk[name]
	s.onDisk[name] = next
	s.write(name, next.text)
	s.expect(changes)
}

// good returns a new version of a file. That of a.yaml has the permanent rule at its end, so that large parts of it are
// valid files without that rule.
func (s *soak) good(name string) soakFile {
	s.version++
	var b strings.Builder
	fmt.Fprintf(&b, "# version %d\nrules:\n", s.version)
	for i := range 1 + s.rand.IntN(4) {
		fmt.Fprintf(&b, "  - name: %s%d\n    limit: %d/s\n", name[:1], i, 1_000_000+s.version)
	}
	if name == "a.yaml" {
		fmt.Fprintf(&b, "  - name: always\n    description: version %d\n    per: [\"header:X-User\"]\n", s.version)
		fmt.Fprintf(&b, "    algorithm: fixed_window\n    limit: %d/day\n", soakLimit)
	}
	return soakFile{b.String(), true}
}

func (s *soak) bad() soakFile {
	s.version++
	return soakFile{text: fmt.Sprintf([]string{
		"rules:\n  - name: wrong\n    limit: %d\n",
		"rules: [ # version %d\n",
		"# version %d\nrules:\n  - name: twice\n    limit: 1/s\n  - name: twice\n    limit: 2/s\n",
	}[s.rand.IntN(3)], s.version)}
}

// write writes a file in one of the usual ways.
func (s *soak) write(name, text string) {
	switch n := s.rand.IntN(4); {
	case n == 0:
		s.overwrite(name, text)
	case n == 1:
		s.overwriteInHalves(name, text)
	case name == "a.yaml":
		s.swap(text)
	default:
		s.must(os.WriteFile(s.path(".tmp"), []byte(text), 0o600))
		s.must(os.Rename(s.path(".tmp"), s.path(name)))
	}
}

func (s *soak) overwrite(name, text string) {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.must(os.WriteFile(s.path(name), []byte(text), 0o600))
}

// overwriteInHalves leaves a file half written until it was read in that state.
func (s *soak) overwriteInHalves(name, text string) {
	half := s.rand.IntN(len(text))
	s.disk.Lock()
	defer s.disk.Unlock()
	s.must(os.WriteFile(s.path(name), []byte(text[:half]), 0o600))
	s.otherHalf = func() {
		f, err := os.OpenFile(s.path(name), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(text[half:])
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			s.t.Error(err)
		}
	}
}

// swap replaces the target of the link a.yaml like a kubelet.
func (s *soak) swap(text string) {
	s.version++
	next := fmt.Sprint("..", s.version)
	old, err := os.Readlink(s.path("..data"))
	s.must(os.Mkdir(s.path(next), 0o700))
	s.must(os.WriteFile(filepath.Join(s.path(next), "a.yaml"), []byte(text), 0o600))
	s.must(os.Symlink(next, s.path("..data_tmp")))
	s.must(os.Rename(s.path("..data_tmp"), s.path("..data")))
	if err == nil {
		s.must(os.RemoveAll(s.path(old)))
	}
}

// vanish removes the directory and restores it.
func (s *soak) vanish() {
	s.must(os.Rename(s.dir, s.dir+".away"))
	s.wantRefused++
	if s.watcher.Reload() == nil {
		s.t.Error("a missing directory was loaded")
	}
	if s.wait() == nil {
		s.t.Error("a missing directory was reported as loaded")
	}
	s.must(os.Rename(s.dir+".away", s.dir))
	s.expect(true)
}

// expect checks that the files are live if valid, and reported if not. In 50 % of the cases it calls Reload, otherwise
// it leaves the work to the watcher.
func (s *soak) expect(changes bool) {
	s.t.Helper()
	good := s.onDisk["a.yaml"].good && s.onDisk["b.yaml"].good
	same := s.onDisk["a.yaml"] == s.live["a.yaml"] && s.onDisk["b.yaml"] == s.live["b.yaml"]
	silent := same || !changes
	if silent || s.rand.IntN(2) == 0 {
		if err := s.watcher.Reload(); (err == nil) != good {
			s.t.Errorf("Reload returned %v, and the files are good: %v", err, good)
		}
	}
	if !silent {
		if err := s.wait(); (err == nil) != good {
			s.t.Errorf("the news were %v, and the files are good: %v", err, good)
		}
	}
	switch {
	case good && !same:
		l, err := Load(Options{}, s.dir)
		s.must(err)
		s.digest = l.Digest
		s.wantLoaded = append(s.wantLoaded, l.Digest)
		s.live["a.yaml"], s.live["b.yaml"] = s.onDisk["a.yaml"], s.onDisk["b.yaml"]
	case !good && !silent:
		s.wantRefused++
	}
	if got := s.watcher.Current().Digest; got != s.digest {
		s.t.Errorf("%s is live, want %s", got, s.digest)
	}
	if status := s.watcher.Status(); status.Digest != s.digest || (status.LastError == nil) != good {
		s.t.Errorf("status %+v, want the digest %s, and the files are good: %v", status, s.digest, good)
	}
}

func (s *soak) wait() error {
	s.t.Helper()
	select {
	case err := <-s.news:
		return err
	case <-time.After(30 * time.Second):
		s.t.Fatalf("there was no event; status %+v", s.watcher.Status())
		return nil
	}
}

// traffic runs clients that decide requests by the live rules.
type traffic struct {
	t        *testing.T
	watcher  *Watcher
	limiter  *sluice.Limiter
	users    atomic.Int64 // their current number
	requests atomic.Int64
	admitted [soakUsers]atomic.Int64
}

func newTraffic(t *testing.T, w *Watcher) *traffic {
	frozen := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	store, err := memstore.Open(memstore.Config{Now: func() time.Time { return frozen }})
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := sluice.NewWithRules(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &traffic{t: t, watcher: w, limiter: limiter}
}

func (f *traffic) run(ctx context.Context) {
	var m rules.MatchResult
	var out []sluice.Decision
	pace := time.NewTicker(time.Millisecond) // a processor that is never idle serves neither timers nor events in time
	defer pace.Stop()
	for !f.t.Failed() {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		for range 10 {
			out = f.request(rand.IntN(int(f.users.Load())), &m, out)
		}
	}
}

func (f *traffic) request(user int, m *rules.MatchResult, out []sluice.Decision) []sluice.Decision {
	f.requests.Add(1)
	if err := f.watcher.Set().Match(soakRequest(fmt.Sprint("user-", user)), m); err != nil {
		f.t.Error(err)
		return out
	}
	if !slices.ContainsFunc(m.Rules, func(r *rules.Rule) bool { return r.Name == "always" }) {
		f.t.Errorf("a request was not matched by the permanent rule, but by %d others", len(m.Rules))
		return out
	}
	out = slices.Grow(out[:0], len(m.Takes))[:len(m.Takes)]
	allowed, err := f.limiter.Decide(context.Background(), m.Takes, out)
	if err != nil {
		f.t.Error(err)
	}
	if allowed {
		f.admitted[user].Add(1)
	}
	return out
}

// finish uses up the remaining quota, and checks that no user got more or less than the limit.
func (f *traffic) finish() {
	var m rules.MatchResult
	var out []sluice.Decision
	for user := range f.admitted {
		for range soakLimit + 1 {
			out = f.request(user, &m, out)
		}
		if got := f.admitted[user].Load(); got != soakLimit {
			f.t.Errorf("user %d was admitted %d times, want %d", user, got, soakLimit)
		}
	}
}

// soakRequest is a request of a user.
type soakRequest string

func (r soakRequest) Attribute(f *rules.Field) (string, rules.Presence) {
	if f.Kind == rules.FieldHeader && f.Name == "X-User" {
		return string(r), rules.Present
	}
	return "", rules.Absent
}

func (r soakRequest) Addr() netip.Addr { return netip.Addr{} }
