package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
)

// killRules queue most requests, and some even on a slow machine: two requests in 250 ms exceed the limit of slow. Queued requests
// of slow are delivered at 4/s, so the test sends few.
const killRules = `
rules:
  - {name: plain, match: {path: /plain/**}, per: header:X-Client, limit: {rate: 20/s, burst: 2}, on_limit: queue}
  - {name: ordered, match: {path: /ordered/**}, per: header:X-Client, limit: {rate: 20/s, burst: 2}, on_limit: queue, queue: {order: key}}
  - {name: fails, match: {path: /fails/**}, per: header:X-Client, limit: {rate: 20/s, burst: 2}, on_limit: queue, queue: {max_attempts: 2}}
  - {name: slow, match: {path: /slow/**}, per: header:X-Client, limit: {rate: 4/s, burst: 1}, on_limit: queue}
  - {name: refused, match: {path: /refused/**}, per: header:X-Client, limit: {rate: 20/s, burst: 2}, on_limit: queue}
`

// killAnswer returns the status of the upstream's response: some requests always fail, some only at the first attempt.
func killAnswer(path, attempt string) int {
	switch parts := strings.Split(path, "/"); {
	case parts[1] == "fails":
		return http.StatusInternalServerError
	case parts[1] == "refused":
		return http.StatusUnprocessableEntity
	case strings.HasSuffix(parts[3], "7") && attempt == "1" && (parts[1] == "plain" || parts[3] == "0007"):
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// killer repeatedly starts and kills a gateway on one queue directory.
type killer struct {
	section, more string
	clients       []*poster
	up            *witness
	perRound      int // requests of each client

	left    atomic.Int64 // events until the process is killed
	within  atomic.Bool  // kill the process only during a delivery
	dying   atomic.Bool  // the process was killed, or must not be killed
	process atomic.Pointer[os.Process]
	starts  time.Duration // time from start to the first request

	mu  sync.Mutex // guards the following
	all map[string]heardBack
}

// step is called for every event and kills the process at the chosen one; delivering reports whether the event is part of a
// delivery of a queue item.
func (k *killer) step(delivering bool) {
	if k.left.Add(-1) <= 0 && (delivering || !k.within.Load()) && k.dying.CompareAndSwap(false, true) {
		_ = k.process.Load().Kill()
	}
}

// load runs all clients until they have sent their requests or a request gets no response.
func (k *killer) load(t *testing.T, address string) {
	t.Helper()
	var all sync.WaitGroup
	for _, c := range k.clients {
		all.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			n := k.perRound
			if c.kind == "slow" {
				n = 5
			}
			for range n {
				target, got := c.post(t, client, address)
				k.mu.Lock()
				k.all[target] = got
				k.mu.Unlock()
				if got.status == 0 {
					return
				}
				k.step(false)
			}
		})
	}
	all.Wait()
}

// round starts a gateway and kills it, depending on n: during its start, during a delivery, or at a random event.
func (k *killer) round(t *testing.T, n int) {
	t.Helper()
	if n%3 == 1 {
		p := launchGateway(t, "{address: '127.0.0.1:0'}", k.section, killRules, k.more)
		<-time.After(rand.N(k.starts))
		_ = p.cmd.Process.Kill()
		p.killed(t)
		return
	}
	began := time.Now()
	p, address := startGateway(t, k.section, killRules, k.more)
	k.starts = time.Since(began)
	k.process.Store(p.cmd.Process)
	k.left.Store(int64(1 + rand.IntN(len(k.clients)*k.perRound)))
	k.within.Store(n%3 == 0)
	k.dying.Store(false)
	k.load(t, address)
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		t.Fatalf("round %d: no delivery with %+v", n, queuePage(t, p.process, "limit=1").Counts)
	}
	p.killed(t)
}

// A gateway that is killed at any time and restarted loses no request whose client received 202.
func TestGatewayKilled(t *testing.T) {
	t.Parallel()
	rounds := 3
	if os.Getenv("SLUICE_SOAK") != "" {
		rounds = 60
	}
	k := &killer{
		perRound: 20, all: map[string]heardBack{},
		clients: []*poster{
			{kind: "plain", name: "a"},
			{kind: "plain", name: "b", own: true},
			{kind: "ordered", name: "c"},
			{kind: "ordered", name: "d"},
			{kind: "fails", name: "e"},
			{kind: "refused", name: "f"},
			{kind: "slow", name: "g"},
		},
	}
	k.dying.Store(true)
	k.up = newWitness(t, killAnswer, k.step)
	k.section = fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", k.up.URL)
	k.more = fmt.Sprintf("queue: {directory: %q}", memoryDir(t))
	for n := range rounds {
		k.round(t, n)
	}
	p, address := startGateway(t, k.section, killRules, k.more)
	k.load(t, address)
	settled(t, p.process)
	dead := listDead(t, p.process)
	k.up.mu.Lock()
	defer k.up.mu.Unlock()
	k.check(t, address, dead)
	k.checkOrder(t)
	t.Log(k.count(rounds, len(dead)))
	if n := strings.Count(fmt.Sprint(k.statuses()), "202"); n < 10*rounds {
		t.Errorf("only %d requests were queued: too few for this test", n)
	}
}

// queuePage returns the response of GET /v1/queue.
func queuePage(t *testing.T, p *process, query string) (page adminmsg.QueuePage) {
	t.Helper()
	b := fetch(t, "http://"+p.admin+"/v1/queue?"+query)
	if err := json.Unmarshal([]byte(b), &page); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return page
}

// settled waits until all items are delivered.
func settled(t *testing.T, p *process) {
	t.Helper()
	for {
		if c := queuePage(t, p, "limit=1").Counts; c.Up && c.Queued+c.Delivering == 0 {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

// listDead returns the output of sluice queue dead, by id.
func listDead(t *testing.T, p *process) map[string]adminmsg.QueueItem {
	t.Helper()
	dead := map[string]adminmsg.QueueItem{}
	args := []string{"queue", "dead", "-n", "100", "-o", "json", "--admin-url", "http://" + p.admin}
	for next := []string(nil); ; {
		code, out, stderr := sluiceRun(t, append(args, next...)...)
		var page adminmsg.QueuePage
		if err := json.Unmarshal([]byte(out), &page); code != 0 || err != nil {
			t.Fatalf("sluice queue dead: exit %d, %v\n%s%s", code, err, out, stderr)
		}
		for i := range page.Items {
			dead[page.Items[i].ID] = page.Items[i]
		}
		if page.NextPageToken == "" {
			return dead
		}
		next = []string{"--page-token", page.NextPageToken}
	}
}

// check compares the responses that clients received with the requests that the upstream got.
func (k *killer) check(t *testing.T, address string, dead map[string]adminmsg.QueueItem) {
	t.Helper()
	failed := map[string]bool{} // ids of items whose deliveries always fail
	for target, came := range k.up.came {
		got, ok := k.all[target]
		if !ok {
			t.Errorf("%s was delivered, but not sent by a client", target)
			continue
		}
		for i, a := range came {
			if a.body != got.body || a.key != came[0].key || got.own != "" && a.key != got.own {
				t.Errorf("%s was delivered with the key %q and %.60q, before with %q, and sent with %q and %.60q", target, a.key, a.body, came[0].key, got.own, got.body)
			}
			if a.attempt == "" && len(came) > 1 {
				t.Errorf("%s was forwarded without queueing, and delivered %d times", target, len(came))
			}
			if i > 0 && a.attempt == came[i-1].attempt {
				t.Errorf("%s was delivered twice as attempt %s", target, a.attempt)
			}
			if strings.HasPrefix(target, "/fails/") && a.attempt != "" {
				failed[a.key] = true
			}
		}
	}
	for target, got := range k.all {
		came := k.up.came[target]
		switch {
		case got.status == 0:
		case got.status != http.StatusAccepted && (got.status != killAnswer(target, "") || len(came) != 1 || came[0].attempt != ""):
			t.Errorf("%s got status %d, and was delivered as %+v", target, got.status, came)
		case got.status == http.StatusAccepted && (len(came) == 0 || got.own == "" && came[0].key != got.id):
			t.Errorf("%s was accepted as %s, and delivered as %+v", target, got.id, came)
		case got.status == http.StatusAccepted:
			want := `"state":"done"`
			if strings.HasPrefix(target, "/fails/") {
				want = `"state":"dead"`
			}
			if b := fetch(t, "http://"+address+got.at); !strings.Contains(b, want) || !strings.Contains(b, fmt.Sprintf(`"status":%d`, killAnswer(target, "2"))) {
				t.Errorf("%s is %s, want %s", target, b, want)
			}
		}
	}
	for id, it := range dead {
		if !failed[id] || it.Rule != "fails" || it.Attempts < 2 || it.Error != "response 500 Internal Server Error" {
			t.Errorf("unexpected dead letter %+v", it)
		}
	}
	if len(dead) != len(failed) {
		t.Errorf("%d items always fail, but there are %d dead letters", len(failed), len(dead))
	}
}

// checkOrder fails the test if first deliveries of ordered requests are not in the order in which they were sent.
func (k *killer) checkOrder(t *testing.T) {
	t.Helper()
	last := map[string]string{}
	for _, target := range k.up.order {
		if name, n := target[:strings.LastIndex(target, "/")], target; strings.HasPrefix(target, "/ordered/") {
			if n <= last[name] {
				t.Errorf("%s was delivered after %s", target, last[name])
			}
			last[name] = n
		}
	}
}

func (k *killer) statuses() (all []int) {
	for _, got := range k.all {
		all = append(all, got.status)
	}
	slices.Sort(all)
	return all
}

// count summarizes the test for its log.
func (k *killer) count(kills, dead int) string {
	by := map[int]int{}
	for _, status := range k.statuses() {
		by[status]++
	}
	deliveries, again, doubled := 0, 0, 0
	for _, came := range k.up.came {
		deliveries += len(came)
		for i, a := range came[1:] {
			again++
			if before := came[i].status; before < 500 && a.status < 500 {
				doubled++
			}
		}
	}
	return fmt.Sprintf("killed %d times: %d queued, %d other responses, %d without a response; %d requests in %d deliveries: %d redeliveries, %d of them after a success; %d dead letters",
		kills, by[202], len(k.all)-by[202]-by[0], by[0], len(k.up.came), deliveries, again, doubled, dead)
}
