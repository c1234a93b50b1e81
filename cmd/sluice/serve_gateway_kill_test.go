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

// killRules queue most requests, and some however slow the machine is: two requests in 250 ms exceed the limit of slow.
// Queued requests of slow are delivered at 4/s, so the test sends few.
const killRules = `
rules:
  - {name: plain, match: {path: /plain/**}, per: header:X-Client, limit: {rate: 20/s, burst: 2}, on_limit: queue}
  - {name: ordered, match: {path: /ordered/**}, per: header:X-Client, limit: {rate: 20/s, burst: 2}, on_limit: queue, queue: {order: key}}
  - {name: fails, match: {path: /fails/**}, per: header:X-Client, limit: {rate: 20/s, burst: 2}, on_limit: queue, queue: {attempts: 2}}
  - {name: slow, match: {path: /slow/**}, per: header:X-Client, limit: {rate: 4/s, burst: 1}, on_limit: queue}
  - {name: refused, match: {path: /refused/**}, per: header:X-Client, limit: {rate: 20/s, burst: 2}, on_limit: queue}
`

// killAnswer is what the upstream says: some fail for good, some for the first time.
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

// killer starts gateways on one directory and kills them.
type killer struct {
	section, more string
	clients       []*poster
	up            *witness
	perRound      int // requests of each client

	left    atomic.Int64 // events until the process is killed
	within  atomic.Bool  // it is killed while it delivers what was kept
	dying   atomic.Bool  // it is killed, or not to be
	process atomic.Pointer[os.Process]
	starts  time.Duration // how long it takes until it serves

	mu  sync.Mutex // guards the following
	all map[string]heardBack
}

// step is called for everything that happens; delivering is that something is under way that was kept.
func (k *killer) step(delivering bool) {
	if k.left.Add(-1) <= 0 && (delivering || !k.within.Load()) && k.dying.CompareAndSwap(false, true) {
		_ = k.process.Load().Kill()
	}
}

// load has all clients send, until they have or get no answer.
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

// round starts a gateway and kills it: while it starts, while it delivers, or whenever.
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
		t.Fatalf("round %d: of %+v nothing is delivered", n, queuePage(t, p.process, "n=1").Counts)
	}
	p.killed(t)
}

// Killed at any moment and started again, a gateway loses no request that it has answered with 202, as its clients see it.
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
		t.Errorf("only %d were accepted: that shows nothing", n)
	}
}

// queuePage is the answer of GET /v1/queue.
func queuePage(t *testing.T, p *process, query string) (page adminmsg.QueuePage) {
	t.Helper()
	b := fetch(t, "http://"+p.admin+"/v1/queue?"+query)
	if err := json.Unmarshal([]byte(b), &page); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return page
}

// settled waits until nothing is to be delivered.
func settled(t *testing.T, p *process) {
	t.Helper()
	for {
		if c := queuePage(t, p, "n=1").Counts; c.Up && c.Queued+c.Delivering == 0 {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

// listDead is what sluice queue dead lists, by id.
func listDead(t *testing.T, p *process) map[string]adminmsg.QueueItem {
	t.Helper()
	dead := map[string]adminmsg.QueueItem{}
	args := []string{"queue", "dead", "-n", "100", "-o", "json", "--admin", "http://" + p.admin}
	for next := []string(nil); ; {
		code, out, stderr := sluiceRun(t, append(args, next...)...)
		var page adminmsg.QueuePage
		if err := json.Unmarshal([]byte(out), &page); code != 0 || err != nil {
			t.Fatalf("sluice queue dead: exit %d, %v\n%s%s", code, err, out, stderr)
		}
		for i := range page.Items {
			dead[page.Items[i].ID] = page.Items[i]
		}
		if page.Next == "" {
			return dead
		}
		next = []string{"--after", page.Next}
	}
}

// check compares what clients were told with what the upstream got.
func (k *killer) check(t *testing.T, address string, dead map[string]adminmsg.QueueItem) {
	t.Helper()
	failed := map[string]bool{} // ids of what failed for good
	for target, came := range k.up.came {
		got, ok := k.all[target]
		if !ok {
			t.Errorf("%s came, and nobody sent it", target)
			continue
		}
		for i, a := range came {
			if a.body != got.body || a.key != came[0].key || got.own != "" && a.key != got.own {
				t.Errorf("%s came with the key %q and %.60q, before with %q, and was sent with %q and %.60q", target, a.key, a.body, came[0].key, got.own, got.body)
			}
			if a.attempt == "" && len(came) > 1 {
				t.Errorf("%s was sent on at once, and came %d times", target, len(came))
			}
			if i > 0 && a.attempt == came[i-1].attempt {
				t.Errorf("%s came twice as attempt %s", target, a.attempt)
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
			t.Errorf("%s was answered with %d, and came as %+v", target, got.status, came)
		case got.status == http.StatusAccepted && (len(came) == 0 || got.own == "" && came[0].key != got.id):
			t.Errorf("%s was accepted as %s, and came as %+v", target, got.id, came)
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
		if !failed[id] || it.Rule != "fails" || it.Attempts < 2 || it.Error != "the answer was 500 Internal Server Error" {
			t.Errorf("on the list of the dead is %+v", it)
		}
	}
	if len(dead) != len(failed) {
		t.Errorf("%d failed for good, and %d are on the list of the dead", len(failed), len(dead))
	}
}

// checkOrder wants what has an order to have come first in that in which it was sent, accepted or not.
func (k *killer) checkOrder(t *testing.T) {
	t.Helper()
	last := map[string]string{}
	for _, target := range k.up.order {
		if name, n := target[:strings.LastIndex(target, "/")], target; strings.HasPrefix(target, "/ordered/") {
			if n <= last[name] {
				t.Errorf("%s came after %s", target, last[name])
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

// count says what happened.
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
	return fmt.Sprintf("killed %d times: %d accepted, %d answered at once, %d without an answer; %d came, in %d deliveries: %d again, of them %d of what the upstream had done; %d dead",
		kills, by[202], len(k.all)-by[202]-by[0], by[0], len(k.up.came), deliveries, again, doubled, dead)
}
