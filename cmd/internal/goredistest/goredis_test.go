package goredistest

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/redisstore/goredis"
	"github.com/sluiceproject/sluice/storetest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

var opened atomic.Int64

func open(t testing.TB, client redis.UniversalClient, now func() time.Time) *redisstore.Store {
	t.Helper()
	commander, err := goredis.New(client)
	if err != nil {
		t.Fatal(err)
	}
	return sluice.Must(redisstore.Open(redisstore.Config{
		Commander: commander, KeyPrefix: "g" + strconv.FormatInt(opened.Add(1), 10) + ":", Now: now,
	}))
}

func single(t testing.TB, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestConformance runs storetest with a client of one server and with a client of a Cluster. Checks that need a virtual
// clock do not depend on the client, and run only with SLUICE_SOAK.
func TestConformance(t *testing.T) {
	soak := os.Getenv("SLUICE_SOAK") != ""
	for name, client := range map[string]redis.UniversalClient{
		"single": single(t, redistest.Shared(t).Addr), "cluster": cluster(t),
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, storetest.Harness{
				Open: func(t testing.TB, clock *storetest.Clock) sluice.Store {
					if soak {
						return open(t, client, clock.Now)
					}
					return open(t, client, nil)
				},
				Caps: storetest.Caps{NonAtomicKeys: name == "cluster", RealClock: !soak},
			})
		})
	}
}

func cluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	var addrs []string
	for _, s := range redistest.StartCluster(t).Servers {
		addrs = append(addrs, s.Addr)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

var (
	rule  = sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(100).WithAlgorithm(sluice.FixedWindow)}))
	takes = []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}
)

func take(store sluice.Store, budget time.Duration) (sluice.Decision, error) {
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	out := make([]sluice.Decision, 1)
	err := store.Apply(ctx, takes, out)
	return out[0], err
}

// TestSentOnce checks that a connection that is closed after the command was sent fails the call, and that the command
// is not resent, as go-redis would do by default.
func TestSentOnce(t *testing.T) {
	server := redistest.Start(t)
	client := single(t, server.Addr)
	store := open(t, client, nil)
	if _, err := take(store, time.Minute); err != nil {
		t.Fatal(err)
	}
	// The server does not reply for a while, but has received the command.
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := take(store, 50*time.Millisecond); !errors.Is(err, sluice.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("paused server: error %v", err)
	}
	if err := server.Continue(); err != nil {
		t.Fatal(err)
	}
	d, err := take(store, time.Minute)
	if err != nil || d.Remaining < 97 {
		t.Errorf("Remaining is %d of 100 after three takes: %v", d.Remaining, err)
	}
	killed := errors.New("a cut connection")
	client.AddHook(hook{func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if !cmd.NoRetry() {
			t.Errorf("%s may be resent", cmd.Name())
		}
		return errors.Join(killed, next(ctx, cmd))
	}})
	if _, err := take(store, time.Minute); !errors.Is(err, killed) || !errors.Is(err, sluice.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

type hook struct {
	process func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error
}

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h.process(ctx, cmd, next) }
}

// TestFailures: a flushed script, a server that restarts, and a closed client.
func TestFailures(t *testing.T) {
	server := redistest.Start(t)
	client := single(t, server.Addr)
	store := open(t, client, nil)
	for range 3 {
		if _, err := server.Do("SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
		if _, err := take(store, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	server.Kill()
	if _, err := take(store, time.Minute); !errors.Is(err, sluice.ErrUnavailable) {
		t.Errorf("without a server: error %v", err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := take(store, time.Minute); err != nil {
		t.Errorf("after a restart: error %v", err)
	}
	store.Close()
	if _, err := take(store, time.Minute); err != nil {
		t.Errorf("the caller's client was closed: %v", err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := take(store, time.Minute); !errors.Is(err, sluice.ErrClosed) {
		t.Errorf("closed client: error %v", err)
	}
}

// TestList checks that all stored buckets are found, on all servers.
func TestList(t *testing.T) {
	for name, client := range map[string]redis.UniversalClient{
		"single": single(t, redistest.Shared(t).Addr), "cluster": cluster(t),
	} {
		store := open(t, client, nil)
		for i := range 50 {
			takes := []sluice.Take{{Rule: rule, Key: strconv.Itoa(i), Cost: 1}}
			if err := store.Apply(t.Context(), takes, make([]sluice.Decision, 1)); err != nil {
				t.Fatal(err)
			}
		}
		found := map[string]bool{}
		for q := (sluice.ListOptions{Rules: []*sluice.Rule{rule}, PageSize: 10}); ; {
			page, err := store.List(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range page.Buckets {
				found[l.Key] = true
			}
			if q.PageToken = page.NextPageToken; page.NextPageToken == "" {
				break
			}
		}
		if len(found) != 50 {
			t.Errorf("%s: %d of 50 buckets listed", name, len(found))
		}
	}
}

// TestHeartbeat checks that instances are counted regardless of the client they use.
func TestHeartbeat(t *testing.T) {
	client := single(t, redistest.Shared(t).Addr)
	ctx, cancel := context.WithCancel(t.Context())
	var (
		store *redisstore.Store
		beats sync.WaitGroup
	)
	for range 3 {
		store = sluice.Must(redisstore.Open(redisstore.Config{Commander: sluice.Must(goredis.New(client)), KeyPrefix: "beats:"}))
		s := store
		beats.Go(func() { _ = s.Heartbeat(ctx) })
	}
	defer beats.Wait()
	defer cancel()
	for deadline, tick := time.After(time.Minute), time.Tick(time.Millisecond); store.Instances() != 3; {
		select {
		case <-tick:
		case <-deadline:
			t.Fatalf("%d instances are counted", store.Instances())
		}
	}
}
