package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
)

// The stores scenario compares the stores: latency of one caller, decisions per second of many, memory of a key, and
// how many requests several instances admit together in a window, with each algorithm.

// storeContender is a kind of store.
type storeContender struct {
	contender
	start func() (storeServer, error)
}

// storeServer is where the buckets of a run are.
type storeServer interface {
	open() (sluice.Store, func(), error) // the store of one instance, and its end
	used() (float64, error)              // bytes of memory, with those of an empty server
	cpu() time.Duration                  // processor time of a process of its own
	stop()
}

func storeOf(name, about, clock string, start func() (storeServer, error)) storeContender {
	return storeContender{
		contender: contender{name: name, role: roleOurs, about: about, clock: clock, scenarios: []string{storeRun}},
		start:     start,
	}
}

var storeContenders = []storeContender{
	storeOf("store-memory", "memstore; its instances are limiters of one process", oursClock, startMemoryStore),
	storeOf("store-redis", "redisstore", "the server's", startRedisStore),
	storeOf("store-memcached", "memcachestore", "of each instance", startMemcachedStore),
}

func storeNamed(name string) *storeContender {
	return &storeContenders[slices.IndexFunc(storeContenders, func(c storeContender) bool { return c.name == name })]
}

// storeAlgorithms are the algorithms that are compared.
var storeAlgorithms = []sluice.Algorithm{sluice.TokenBucket, sluice.FixedWindow, sluice.SlidingWindowCounter, sluice.SlidingWindowLog}

// storeCost is the result with one algorithm.
type storeCost struct {
	Algorithm string
	P50, P99  float64 // microseconds, one caller
	PerSecond float64 // decisions, storeCallers callers
	Bytes     float64 // of memory for a key
	Peak      float64 // requests admitted in the busiest window, of the limit
	Used      float64 // requests admitted in the whole time, of limit × time
	Disturbed bool    `json:",omitempty"`
}

const (
	storeCallers   = 64
	storeInstances = 4
	storeRate      = 200 // requests a second that the instances share
	storeWindow    = time.Second
)

// storeTime is how long requests are offered at 2 × storeRate.
var storeTime = 4 * time.Second

// storeScenario returns the scenario in its full or quick size.
func storeScenario(quick bool, reps int) scenario {
	s := scenario{storeRun, "stores", 200_000, 100_000, reps, false}
	if quick {
		s.keys, s.ops = 5_000, 8_000
	}
	return s
}

func measureStore(c *storeContender, s *scenario, j job) (*result, error) {
	res := new(result)
	for _, a := range storeAlgorithms {
		cost, err := c.measure(a, s, j)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", a, err)
		}
		res.Stores = append(res.Stores, cost)
	}
	return res, nil
}

func (c *storeContender) measure(a sluice.Algorithm, s *scenario, j job) (cost storeCost, err error) {
	server, err := c.start()
	if err != nil {
		return cost, err
	}
	defer server.stop()
	cost.Algorithm = a.String()
	// None of it is denied or expires.
	limiter, done, err := storeLimiter(server, sluice.Per(10_000, longWindow).WithAlgorithm(a))
	if err != nil {
		return cost, err
	}
	defer done()
	names, err := makeKeys(s.keys)
	if err != nil {
		return cost, err
	}
	empty, err := server.used()
	if err != nil {
		return cost, err
	}
	if _, _, err := driveStore(limiter, names, 16); err != nil { // each once
		return cost, err
	}
	full, err := server.used()
	if err != nil {
		return cost, err
	}
	cost.Bytes = (full - empty) / float64(s.keys)

	hits := make([]string, s.ops)
	for i, k := range shuffled(rand.New(rand.NewPCG(j.Seed, 0)), s.keys, s.ops) {
		hits[i] = names[k]
	}
	seen, served := watch(), server.cpu()
	_, took, err := driveStore(limiter, hits[:s.ops/8], 1)
	if err != nil {
		return cost, err
	}
	slices.Sort(took)
	cost.P50, cost.P99 = micros(took[len(took)/2]), micros(took[len(took)*99/100])
	elapsed, _, err := driveStore(limiter, hits, storeCallers)
	if err != nil {
		return cost, err
	}
	cost.PerSecond = float64(s.ops) / elapsed.Seconds()
	cost.Disturbed = seen.disturbedBeside(server.cpu() - served)
	cost.Peak, cost.Used, err = admittedTogether(server, a)
	return cost, err
}

// storeLimiter returns a limiter on a store of its own.
func storeLimiter(server storeServer, limit sluice.Limit) (*sluice.Limiter, func(), error) {
	store, done, err := server.open()
	if err != nil {
		return nil, nil, err
	}
	// A timeout beyond any wait: what is measured is the store, not the fallback of a busy machine.
	l, err := sluice.New(store, "bench", limit, sluice.WithStoreTimeout(5*time.Second))
	if err != nil {
		done()
		return nil, nil, err
	}
	return l, func() { _ = l.Close(context.Background()); done() }, nil
}

// driveStore decides all keys in their order, each caller the next when it has a decision. All must be allowed by the store.
func driveStore(l *sluice.Limiter, keys []string, callers int) (elapsed time.Duration, took []time.Duration, err error) {
	took = make([]time.Duration, len(keys))
	wrong := make([]error, callers)
	var done sync.WaitGroup
	begin := time.Now()
	for i := range callers {
		done.Go(func() {
			for k := i; k < len(keys); k += callers {
				start := time.Now()
				d, err := l.Allow(context.Background(), keys[k])
				took[k] = time.Since(start)
				if err != nil || !d.Allowed || d.Source.Degraded() {
					wrong[i] = failf("%s: allowed %v by %v: %v", keys[k], d.Allowed, d.Source, err)
					return
				}
			}
		})
	}
	done.Wait()
	return time.Since(begin), took, errors.Join(wrong...)
}

// admittedTogether lets instances share one key, offers them 2 × the limit, and returns the requests admitted in
// the busiest window and in all, as shares of the limit.
func admittedTogether(server storeServer, a sluice.Algorithm) (peak, used float64, err error) {
	limit := sluice.Per(storeRate, storeWindow).WithAlgorithm(a)
	var mu sync.Mutex
	var admitted []time.Duration
	var wrong error
	var done sync.WaitGroup
	begin := time.Now()
	for range storeInstances {
		l, end, err := storeLimiter(server, limit)
		if err != nil {
			return 0, 0, err
		}
		defer end()
		done.Go(func() {
			// Offers 2 × limit in all: a request every 1/(2 × rate) × instances.
			tick := time.NewTicker(storeInstances * storeWindow / (2 * storeRate))
			defer tick.Stop()
			for time.Since(begin) < storeTime {
				d, err := l.Allow(context.Background(), "shared")
				mu.Lock()
				if wrong = errors.Join(wrong, err); err == nil && d.Allowed {
					admitted = append(admitted, time.Since(begin))
				}
				mu.Unlock()
				<-tick.C
			}
		})
	}
	done.Wait()
	if wrong != nil {
		return 0, 0, wrong
	}
	slices.Sort(admitted)
	most, first := 0, 0
	for i, at := range admitted {
		for admitted[first] <= at-storeWindow {
			first++
		}
		most = max(most, i-first+1)
	}
	used = float64(len(admitted)) / (storeRate * storeTime.Seconds())
	if used <= 0 || used > 3 {
		return 0, 0, failf("%d were admitted in %v by a limit of %d a second", len(admitted), storeTime, storeRate)
	}
	return float64(most) / storeRate, used, nil
}

type memoryStore struct{ store *memstore.Store }

func startMemoryStore() (storeServer, error) { return memoryStore{memstore.New()}, nil }

func (m memoryStore) open() (sluice.Store, func(), error) { return m.store, func() {}, nil }

func (m memoryStore) used() (float64, error) {
	w, err := weight()
	return float64(w.resident), err
}

func (m memoryStore) cpu() time.Duration { return 0 }

func (m memoryStore) stop() {}

type redisStoreServer struct{ *redisServer }

func startRedisStore() (storeServer, error) {
	s, err := startRedis(context.Background(), "")
	if err != nil {
		return nil, err
	}
	return redisStoreServer{s}, nil
}

func (s redisStoreServer) open() (sluice.Store, func(), error) {
	store, err := redisstore.Open(redisstore.Config{URL: "redis://" + s.addr})
	if err != nil {
		return nil, nil, err
	}
	return store, func() { store.Close() }, nil
}

func (s redisStoreServer) used() (float64, error) { return s.number("memory", "used_memory") }

func (s redisStoreServer) cpu() time.Duration { return processTime(s.cmd) }

type memcachedServer struct {
	addr string
	cmd  *exec.Cmd
}

func startMemcachedStore() (storeServer, error) {
	addrs, err := freeAddrs(1)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addrs[0])
	s := &memcachedServer{addr: addrs[0], cmd: exec.Command("memcached", "-l", "127.0.0.1", "-p", port, "-u", "nobody", "-m", "512")}
	s.cmd.SysProcAttr = dieWithParent()
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w; on Debian: apt-get install memcached", err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if _, err = s.used(); err == nil {
			return s, nil
		}
		if time.Now().After(deadline) {
			s.stop()
			return nil, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *memcachedServer) open() (sluice.Store, func(), error) {
	store, err := memcachestore.Open(memcachestore.Config{Addrs: []string{s.addr}})
	if err != nil {
		return nil, nil, err
	}
	return store, func() { _ = store.Close() }, nil
}

// used returns the size of all items, their headers included.
func (s *memcachedServer) used() (float64, error) {
	conn, err := net.DialTimeout("tcp", s.addr, time.Second)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write([]byte("stats\r\n")); err != nil {
		return 0, err
	}
	var reply strings.Builder
	for buf := make([]byte, 4096); !strings.HasSuffix(reply.String(), "END\r\n"); {
		n, err := conn.Read(buf)
		if err != nil {
			return 0, err
		}
		reply.Write(buf[:n])
	}
	_, rest, ok := strings.Cut(reply.String(), "STAT bytes ")
	if !ok {
		return 0, errors.New("stats of Memcached have no bytes")
	}
	text, _, _ := strings.Cut(rest, "\r\n")
	return strconv.ParseFloat(text, 64)
}

func (s *memcachedServer) cpu() time.Duration { return processTime(s.cmd) }

func (s *memcachedServer) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}
