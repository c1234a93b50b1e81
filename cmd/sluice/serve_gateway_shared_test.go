package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// natsServer starts a NATS server on a TCP port and returns its URL.
func natsServer(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, JetStream: true, StoreDir: memoryDir(t), SyncAlways: true,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 8 << 30,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	for !s.ReadyForConnections(time.Second) {
		if t.Context().Err() != nil {
			t.Fatal("the NATS server does not start")
		}
	}
	return s.ClientURL()
}

// asNATS is the environment variable that makes the test binary run a NATS server with its files in the named directory. As a
// separate process the server can be stopped and continued.
const asNATS = "SLUICE_TEST_AS_NATS"

// runNATS runs a NATS server until standard input ends. It writes its URL to standard output.
func runNATS(directory string) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, JetStream: true, StoreDir: directory, JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 8 << 30,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		fmt.Fprintln(os.Stderr, "the NATS server does not start")
		os.Exit(1)
	}
	fmt.Println(s.ClientURL())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

const (
	sharedRate    = 50
	sharedBurst   = 5
	sharedWorkers = 4
)

// Gateways that share a queue and a store deliver at the rule's rate in total, and the loss of one gateway loses no request.
func TestGatewaysShareAQueue(t *testing.T) {
	t.Parallel()
	const each = 25 // requests per client
	var deliveries atomic.Int64
	enough := make(chan struct{})
	up := newWitness(t, func(string, string) int { return http.StatusOK }, func(bool) {
		if deliveries.Add(1) == 2*each {
			close(enough)
		}
	})
	rules := fmt.Sprintf("rules: [{name: all, limit: {rate: %d/s, burst: %d}, on_limit: queue}]", sharedRate, sharedBurst)
	more := fmt.Sprintf("store: {kind: redis, url: %q, timeout: 5s}\nqueue: {url: %q, workers: %d}", redistest.Start(t).URL(), natsServer(t), sharedWorkers)
	var gateways [2]gatewayProcess
	var addresses [2]string
	for i := range gateways { // the prefix identifies the gateway that delivered
		gateways[i], addresses[i] = startGateway(t,
			fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api, add_prefix: /by%d}]}", up.URL, i), rules, more)
	}
	var mu sync.Mutex
	all := map[string]heardBack{}
	began := time.Now()
	var clients sync.WaitGroup
	for i, address := range addresses {
		for n := range 2 {
			clients.Go(func() {
				c := &poster{kind: "x", name: fmt.Sprintf("client-%d-%d", i, n)}
				for range each {
					target, got := c.post(t, http.DefaultClient, address)
					if got.status == http.StatusAccepted { // the other gateway has the item at once
						if b := fetch(t, "http://"+addresses[1-i]+got.at); !strings.Contains(b, got.id) || !strings.Contains(b, `"state":"`) {
							t.Errorf("status of %s at the other gateway: %s", target, b)
						}
					}
					if got.status != http.StatusAccepted && got.status != http.StatusOK {
						t.Errorf("%s: %d", target, got.status)
					}
					mu.Lock()
					all[target] = got
					mu.Unlock()
				}
			})
		}
	}
	clients.Wait()
	if t.Failed() {
		return
	}
	<-enough
	_ = gateways[0].cmd.Process.Kill()
	gateways[0].killed(t)
	unfinished := delivered(t, gateways[1].process)
	if os.Getenv("SLUICE_SOAK") != "" { // until the delivery claims of the killed gateway expire
		settled(t, gateways[1].process)
		clear(unfinished)
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	by, accepted := checkShared(t, up, all, unfinished)
	for i, at := range up.at {
		if most := sharedBurst + sharedRate*at.Sub(began).Seconds(); float64(i+1) > most {
			t.Errorf("%d were delivered in %v, want at most %.1f", i+1, at.Sub(began), most)
		}
	}
	t.Logf("one of two gateways killed: %d sent, %d queued, %d deliveries, %v, %d begun by the killed one; the last after %v",
		len(all), accepted, len(up.at), by, len(unfinished), up.at[len(up.at)-1].Sub(began))
	if by["by0"] == 0 || by["by1"] == 0 || accepted < each {
		t.Error("too few requests were queued or delivered by both gateways for this test")
	}
}

// delivered waits until the only items left are deliveries that the lost gateway had begun, whose claims have not expired, and
// returns their ids.
func delivered(t *testing.T, p *process) map[string]bool {
	t.Helper()
	for {
		page := queuePage(t, p, "limit=1000")
		begun := map[string]bool{}
		for i := range page.Items {
			if page.Items[i].State == "delivering" {
				begun[page.Items[i].ID] = true
			}
		}
		if len(begun) == len(page.Items) && len(begun) <= sharedWorkers {
			return begun
		}
		<-time.After(20 * time.Millisecond)
	}
}

// checkShared compares the responses that clients received with the deliveries, and counts the deliveries of each gateway.
func checkShared(t *testing.T, up *witness, all map[string]heardBack, unfinished map[string]bool) (by map[string]int, accepted int) {
	t.Helper()
	by = map[string]int{}
	came := map[string][]arrival{}
	for path, list := range up.came {
		_, target, _ := strings.Cut(path[1:], "/")
		by[path[1:len("/by0")]] += len(list)
		came["/"+target] = append(came["/"+target], list...)
	}
	for target, got := range all {
		for _, a := range came[target] {
			if a.body != got.body || a.key != got.id || (a.attempt == "") != (got.status == http.StatusOK) {
				t.Errorf("%s got status %d as %s, and was delivered as %s, %.60q", target, got.status, got.id, a.key, a.body)
			}
		}
		switch n := len(came[target]); {
		case got.status == http.StatusAccepted:
			accepted++
			if n == 0 && !unfinished[got.id] {
				t.Errorf("%s was accepted and not delivered", target)
			}
		case got.status != http.StatusOK || n != 1:
			t.Errorf("%s got status %d, and was delivered %d times", target, got.status, n)
		}
	}
	for target := range came {
		if _, ok := all[target]; !ok {
			t.Errorf("%s was delivered, but not sent by a client", target)
		}
	}
	return by, accepted
}
