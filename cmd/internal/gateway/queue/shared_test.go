package queue

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// natsServer starts an external server with a port.
func natsServer(t *testing.T, change ...func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, JetStream: true, StoreDir: quick(t), SyncAlways: true,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 8 << 30,
	}
	for _, c := range change {
		c(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	eventually(t, "the server is ready", func() bool { return s.ReadyForConnections(time.Second) })
	return s
}

// Gateways that share a queue together deliver all items, each once and in order.
func TestShared(t *testing.T) {
	t.Parallel()
	url, up := natsServer(t).ClientURL(), newUpstream()
	by := make([]int, 2)
	var mu sync.Mutex
	var all []*Queue
	for n := range by {
		q, _ := run(t, Config{URL: url}, func(ctx context.Context, it *Item, begin func() error) Outcome {
			out := up.deliver(ctx, it, begin)
			mu.Lock()
			defer mu.Unlock()
			if out.Status > 0 {
				by[n]++
			}
			return out
		})
		all = append(all, q)
	}
	var ids []string
	for n := range 30 {
		ids = append(ids, put(t, all[n%2], Item{Rule: "r", Key: "k", Target: "/x"}))
		ids = append(ids, put(t, all[n%2], Item{Rule: "o", Key: "k", Ordered: true, Target: fmt.Sprintf("/ordered/%03d", n)}))
	}
	for _, id := range ids {
		eventually(t, "done", isState(t, all[0], id, Done))
	}
	times, last := map[string]int{}, ""
	for _, d := range up.deliveries() {
		if times[d.id]++; times[d.id] > 1 {
			t.Errorf("%s was delivered %d times", d.target, times[d.id])
		}
		if strings.HasPrefix(d.target, "/ordered/") {
			if d.target <= last {
				t.Errorf("%s was delivered after %s", d.target, last)
			}
			last = d.target
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if by[0] == 0 || by[1] == 0 {
		t.Errorf("deliveries by gateway: %v", by)
	}
	eventually(t, "both indexes are empty", func() bool {
		a, b := all[0].Counts(t.Context()), all[1].Counts(t.Context())
		return a.Queued+a.Delivering+b.Queued+b.Delivering == 0 && a.Ended == int64(len(ids))
	})
}

// An item of a crashed gateway is delivered by another one after the claim has expired.
func TestSharedLost(t *testing.T) {
	t.Parallel()
	url, up := natsServer(t).ClientURL(), newUpstream()
	inside, leave := make(chan struct{}), make(chan struct{})
	lost, _ := run(t, Config{URL: url, ClaimTTL: 300 * time.Millisecond}, func(_ context.Context, _ *Item, begin func() error) Outcome {
		if begin() == nil {
			close(inside)
			<-leave
		}
		return Outcome{}
	})
	id := put(t, lost, Item{Rule: "r", Key: "k", Ordered: true, Target: "/first"})
	<-inside
	lost.current.Swap(nil).close() // simulates a crash: the session is not reopened
	q, _ := run(t, Config{URL: url, ClaimTTL: 300 * time.Millisecond}, up.deliver)
	if _, err := q.Cancel(t.Context(), id); !errors.Is(err, ErrDelivering) {
		t.Errorf("cancelled an item of another gateway: %v", err)
	}
	next := put(t, q, Item{Rule: "r", Key: "k", Ordered: true, Target: "/second"})
	eventually(t, "taken over", isState(t, q, id, Done))
	eventually(t, "done", isState(t, q, next, Done))
	got := up.deliveries()
	if len(got) != 2 || got[0].target != "/first" || got[0].attempt != "2" || got[0].key != id {
		t.Errorf("deliveries: %+v", got)
	}
	close(leave)
}

// A slow gateway keeps its claims.
func TestSharedSlow(t *testing.T) {
	t.Parallel()
	url, up := natsServer(t).ClientURL(), newUpstream()
	const lease = 200 * time.Millisecond
	up.answer("/slow", func(*Item) Outcome {
		<-time.After(5 * lease)
		return Outcome{Status: 200}
	})
	first, _ := run(t, Config{URL: url, ClaimTTL: lease}, up.deliver)
	_, _ = run(t, Config{URL: url, ClaimTTL: lease}, up.deliver)
	id := put(t, first, Item{Rule: "r", Target: "/slow"})
	eventually(t, "done", isState(t, first, id, Done))
	if n := len(up.deliveries()); n != 1 {
		t.Errorf("delivered %d times", n)
	}
}

// The queue waits for a server that is not available yet. Until then nothing is accepted.
func TestSharedLater(t *testing.T) {
	t.Parallel()
	address := netip.MustParseAddrPort(tcptest.FreeAddress(t))
	up := newUpstream()
	q, _ := run(t, Config{URL: "nats://" + address.String()}, up.deliver)
	if _, err := q.Put(t.Context(), Item{}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("accepted without a server: %v", err)
	}
	natsServer(t, func(o *server.Options) { o.Port = int(address.Port()) })
	var id string
	var err error
	eventually(t, "accepted", func() bool { id, err = q.Put(t.Context(), Item{Rule: "r"}); return err == nil })
	eventually(t, "done", isState(t, q, id, Done))
}

// Removed streams are created again.
func TestSharedStreamsRemoved(t *testing.T) {
	t.Parallel()
	url, up := natsServer(t).ClientURL(), newUpstream()
	q, _ := run(t, Config{URL: url}, up.deliver)
	s := q.current.Load()
	for _, name := range []string{"items", "states", "results"} {
		if err := s.js.DeleteStream(t.Context(), "sluice-"+name); err != nil {
			t.Fatal(err)
		}
	}
	var id string
	eventually(t, "accepted", func() (ok bool) {
		var err error
		id, err = q.Put(t.Context(), Item{Rule: "r"})
		return err == nil
	})
	eventually(t, "done", isState(t, q, id, Done))
}

// In a cluster there are three replicas, also if the servers are not connected to each other yet. The queue works with one
// server less.
func TestCluster(t *testing.T) {
	t.Parallel()
	var ports []int
	var routes []string
	for range 3 {
		address := netip.MustParseAddrPort(tcptest.FreeAddress(t))
		ports = append(ports, int(address.Port()))
		routes = append(routes, "nats://"+address.String())
	}
	start := func(n int) *server.Server {
		return natsServer(t, func(o *server.Options) {
			o.ServerName = fmt.Sprint("n", n)
			o.Cluster = server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[n]}
			o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		})
	}
	servers := []*server.Server{start(0), start(1), start(2)}
	leads := func(s *server.Server) bool { return s.JetStreamIsLeader() }
	eventually(t, "the cluster has a leader", func() bool { return slices.ContainsFunc(servers, leads) })
	up := newUpstream()
	q, _ := run(t, Config{URL: servers[0].ClientURL() + "," + servers[1].ClientURL()}, up.deliver)
	accepted := map[string]bool{}
	accept := func() {
		eventually(t, "accepted", func() bool {
			id, err := q.Put(t.Context(), Item{Rule: "r"})
			if err == nil {
				accepted[id] = true
			}
			return err == nil
		})
	}
	accept()
	if n := q.current.Load().items.CachedInfo().Config.Replicas; n != 3 {
		t.Errorf("%d replicas", n)
	}
	servers[0].Shutdown()
	for range 20 {
		accept()
	}
	for id := range accepted {
		eventually(t, "done", isState(t, q, id, Done))
	}
}

// A consumer that is lost with a server is replaced, whether it is closed or only receives no messages.
func TestSharedFollowersLost(t *testing.T) {
	t.Parallel()
	url, up := natsServer(t).ClientURL(), newUpstream()
	q, _ := run(t, Config{URL: url}, up.deliver)
	old := q.current.Load()
	for _, w := range old.watches {
		w.Stop()
	}
	eventually(t, "another session", func() bool { s := q.current.Load(); return s != nil && s != old })
	eventually(t, "done", isState(t, q, put(t, q, Item{Rule: "r"}), Done))

	s := &session{index: newIndex(q)}
	for sweep, want := range []bool{false, false, true} { // one stored item was not received
		if got := s.consumerStalled(1); got != want {
			t.Errorf("sweep %d: %v", sweep, got)
		}
	}
	s.itemsReceived.Add(1)
	if s.consumerStalled(1) {
		t.Error("stalled after a received item")
	}
	if s.consumerStalled(uint64(s.index.len())) {
		t.Error("stalled although all items were received")
	}
}
