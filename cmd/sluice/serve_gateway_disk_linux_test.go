package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/disktest"
)

// diskGateway is a gateway with its queue on a small disk.
type diskGateway struct {
	gatewayProcess
	address, disk string
	client        *poster
	accepted      map[string]heardBack
}

// until posts requests until the response has the status, and returns that response. Other statuses than 202, 503 and 200 fail the
// test.
func (g *diskGateway) until(t *testing.T, status int) {
	t.Helper()
	for {
		target, got := g.client.post(t, http.DefaultClient, g.address)
		switch got.status {
		case http.StatusAccepted:
			g.accepted[target] = got
		case http.StatusServiceUnavailable:
			if got.retryAfter != "5" {
				t.Errorf("503 with Retry-After: %q", got.retryAfter)
			}
		case http.StatusOK:
		default:
			t.Fatalf("%s: %d", target, got.status)
		}
		if got.status == status {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-g.ended:
			t.Fatalf("sluice serve exited: %v\n%s", g.err, strings.Join(g.log(), "\n"))
		}
	}
}

// While the disk is full or read-only, clients get 503 with Retry-After. Accepted requests are not lost, and the queue recovers
// when there is space again.
func TestGatewayDisk(t *testing.T) {
	t.Parallel()
	disk := disktest.Small(t, 64<<20)
	if disk == "" {
		return
	}
	var held sync.RWMutex // locked for writing while the upstream blocks deliveries
	up := newWitness(t, func(string, string) int { return http.StatusOK }, func(kept bool) {
		if kept {
			held.RLock()
			defer held.RUnlock()
		}
	})
	g := &diskGateway{disk: disk, client: &poster{kind: "x", name: "a"}, accepted: map[string]heardBack{}}
	g.gatewayProcess, g.address = startGateway(t, fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", up.URL),
		"rules: [{name: all, limit: {rate: 20/s, burst: 1}, on_limit: queue}]", fmt.Sprintf("queue: {directory: %q}", filepath.Join(disk, "queue")))
	ballast := filepath.Join(disk, "ballast")
	heal := func() {
		t.Helper()
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		g.until(t, http.StatusAccepted)
	}
	for range 20 { // queue items to deliver in the meantime
		g.until(t, http.StatusAccepted)
	}
	disktest.Fill(t, ballast, 16<<20) // nearly full: no request is accepted, and queue items are delivered
	g.until(t, http.StatusServiceUnavailable)
	settled(t, g.process)
	heal()
	held.Lock()
	release := sync.OnceFunc(held.Unlock)
	defer release()
	for range 20 {
		g.until(t, http.StatusAccepted)
	}
	disktest.Fill(t, ballast, 0) // full: not even the outcome of a delivery can be written
	g.until(t, http.StatusServiceUnavailable)
	release()
	g.await(t, "queue not writable")
	for disktest.ReadOnly(disk) != nil { // succeeds once no file is open for writing
		<-time.After(5 * time.Millisecond)
	}
	before := len(g.accepted)
	g.until(t, http.StatusServiceUnavailable)
	if len(g.accepted) > before {
		t.Error("a request was accepted on a read-only disk")
	}
	disktest.Writable(t, disk)
	heal()
	settled(t, g.process)
	up.mu.Lock()
	defer up.mu.Unlock()
	again := 0
	for target, got := range g.accepted {
		came := up.came[target]
		if len(came) == 0 {
			t.Errorf("%s was accepted and not delivered", target)
			continue
		}
		again += len(came) - 1
		for _, a := range came {
			if a.key != got.id || a.body != got.body {
				t.Errorf("%s was accepted as %s, and delivered as %s", target, got.id, a.key)
			}
		}
	}
	t.Logf("%d accepted, %d delivered more than once", len(g.accepted), again)
}

// While a disk is full, the metrics show the queued requests.
func TestGatewayDiskMetrics(t *testing.T) {
	t.Parallel()
	disk := disktest.Small(t, 64<<20)
	if disk == "" {
		return
	}
	p, address := startGateway(t, fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", application(t).URL),
		"rules: [{name: all, limit: {rate: 1/s, burst: 1}, on_limit: queue}]", fmt.Sprintf("metrics: {http_listener: true}\nqueue: {directory: %q}", filepath.Join(disk, "queue")))
	for range 40 {
		request(t, http.MethodPost, address)
	}
	disktest.Fill(t, filepath.Join(disk, "ballast"), 0)
	p.await(t, "queue not writable") // outcomes of deliveries
	text := p.metrics(t)
	if !strings.Contains(text, "sluice_queue_up 0\n") || !regexp.MustCompile(`sluice_queue_items\{state="queued"\} [1-9]`).MatchString(text) {
		t.Errorf("the queue is not shown as down, or has no items:\n%s", text)
	}
}
