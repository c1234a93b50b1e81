package outagetest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/faultproxy"
)

const (
	loadCallers = 16
	loadPace    = 8 * time.Millisecond // so 2,000 calls per second
	loadKeys    = 64
)

// Without SLUICE_SOAK all durations are 1/10. This suffices to detect calls without a decision and a store that is not
// called again, but not for figures.
var (
	second   = shortly(time.Second)
	normally = 3 * second // duration of the load before the outage
	lasting  = 8 * second // duration of the outage
)

func shortly(d time.Duration) time.Duration {
	if os.Getenv("SLUICE_SOAK") == "" {
		return d / 10
	}
	return d
}

// Measure logs the latency of decisions during the worst outages, and the load on a server after its recovery. It fails
// only for calls without a decision and for a server that is not called again: figures need an idle machine, and are
// for people to judge.
func Measure(t *testing.T, h Harness) {
	t.Parallel()
	report := []string{fmt.Sprintf("%-9s %8s %8s %8s %8s   %-14s %10s %14s %14s", "outage", "p50", "p99", "p99.9", "max",
		"within 1.5×", "back after", "normal ops/s", "first second")}
	nothing := outage{name: "none", begin: func(*faultproxy.Proxy, *Server) {}, end: func(*faultproxy.Proxy, *Server) {}}
	for _, o := range append([]outage{nothing}, outages...) { // the first shows the influence of the machine
		if o.name != nothing.name && !slices.Contains([]string{"paused", "silent", "1 s slow", "killed"}, o.name) {
			continue
		}
		server := h.Start(t)
		proxy := faultproxy.Start(t, server.Addr)
		report = append(report, measure(t, o, h.Open(t, proxy.Addr), proxy, server))
	}
	t.Logf("store timeout %v, %d calls per second of %d callers\n%s", sluice.DefaultStoreTimeout,
		int(time.Second/loadPace)*loadCallers, loadCallers, strings.Join(report, "\n"))
}

// load makes calls at a constant pace and measures their latency.
type load struct {
	limiter   *sluice.Limiter
	measuring atomic.Bool
	mu        sync.Mutex // guards took
	took      []time.Duration
	stored    atomic.Int64 // decisions of the store
}

func (l *load) call(ctx context.Context, t *testing.T, caller int) {
	tick := time.NewTicker(loadPace)
	defer tick.Stop()
	for i := caller; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		measuring, began := l.measuring.Load(), time.Now()
		d, err := l.limiter.Allow(context.WithoutCancel(ctx), fmt.Sprint(i%loadKeys))
		took := time.Since(began)
		if err != nil {
			t.Error(err)
			return
		}
		if !d.Source.Degraded() {
			l.stored.Add(1)
		}
		if measuring {
			l.mu.Lock()
			l.took = append(l.took, took)
			l.mu.Unlock()
		}
	}
}

func measure(t *testing.T, o outage, store sluice.Store, proxy *faultproxy.Proxy, server *Server) string {
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerDay(1 << 30)}))
	l := &load{limiter: sluice.Must(sluice.NewWithRules(store, []*sluice.Rule{rule}))}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range loadCallers {
		all.Go(func() { l.call(ctx, t, i) })
	}
	defer all.Wait()
	defer stop()
	<-time.After(second)
	before := server.Operations()
	<-time.After(normally)
	normal := float64(server.Operations()-before) / normally.Seconds()

	o.begin(proxy, server)
	l.measuring.Store(true)
	<-time.After(lasting)
	l.measuring.Store(false)
	stored := l.stored.Load()
	o.end(proxy, server)
	healed := time.Now()
	for l.stored.Load() == stored && time.Since(healed) < time.Minute {
		<-time.After(time.Millisecond)
	}
	back := time.Since(healed)
	if l.stored.Load() == stored {
		t.Errorf("%s: the store was not called again within a minute", o.name)
	}
	before = server.Operations()
	<-time.After(second)
	first := float64(server.Operations()-before) / second.Seconds()

	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.took)
	at := func(part float64) time.Duration {
		return l.took[int(part*float64(len(l.took)-1))].Round(10 * time.Microsecond)
	}
	verdict := "yes"
	if at(0.999) > sluice.DefaultStoreTimeout*3/2 {
		verdict = "NO"
	}
	stampede := ""
	if first > 1.5*normal {
		stampede = " TOO MANY"
	}
	return fmt.Sprintf("%-9s %8v %8v %8v %8v   %-14s %10v %14.0f %14.0f%s", o.name, at(0.5), at(0.99), at(0.999), at(1), verdict,
		back.Round(time.Millisecond), normal, first, stampede)
}
