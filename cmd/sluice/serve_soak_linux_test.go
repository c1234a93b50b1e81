package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
	"github.com/sluiceproject/sluice/internal/testenv/faultproxy"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// soakTime returns the duration of the soak test: SLUICE_SOAK_TIME, or 30 minutes with SLUICE_SOAK, otherwise a few seconds.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	if text := os.Getenv("SLUICE_SOAK_TIME"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("SLUICE_SOAK_TIME: %v", err)
		}
		return d
	}
	if os.Getenv("SLUICE_SOAK") != "" {
		return 30 * time.Minute
	}
	return 5 * time.Second
}

// soakMemory is the maximum resident memory of a gateway without the race detector, in MiB: the sum of buffered_bytes, store_memory
// and log_buffer in docs/bounds.md. The other bounds there are counts, and queue items are on disk.
const soakMemory = 128 + 256 + 5

// soakRules are valid rules; rate makes them differ.
func soakRules(rate int) string {
	return fmt.Sprintf(`
defaults: {on_failure: local}
rules:
  - {name: address, match: {path: [/h1/**, /h2/**]}, per: ip, limit: {rate: 100000/s}}
  - {name: leased, match: {path: /h1/leased/**}, per: ip, limit: {rate: 100000/s}, accuracy: lease}
  - {name: eventual, match: {path: /h2/eventual/**}, per: ip, limit: {rate: 100000/s}, accuracy: eventual}
  - {name: flight, match: {path: /h2/**}, per: ip, limit: {concurrent: 1000}}
  - {name: tokens, match: {path: /h1/tokens/**}, per: ip, limit: {rate: 1000000/s}, actual_cost: {json: usage.total_tokens}}
  - {name: keys, match: {path: /flood}, per: header:X-Api-Key, limit: {rate: %d/s}}
  - {name: jobs, match: {path: /jobs/**}, per: header:X-Client, limit: {rate: 10/s, burst: 1}, on_limit: queue}
load_shedding:
  - {name: shed, match: {path: /h1/shed/**}, concurrency: {min: 20, max: 500}}
`, rate)
}

// offer is one kind of traffic at a fixed offered rate, independent of the served rate.
type offer struct {
	kind   string
	rate   float64 // requests per second
	honest bool
	do     func(ctx context.Context, n int) error

	offered, served, failed, wrong atomic.Int64

	mu      sync.Mutex // guards reasons
	reasons map[string]int
}

// errWrong is the error for a response that belongs to another request.
var errWrong = errors.New("wrong response")

// soakInFlight is the maximum number of requests in flight of one kind. Requests beyond it count as failed.
const soakInFlight = 500

func (l *offer) run(ctx context.Context, all *sync.WaitGroup) {
	began, tick := time.Now(), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	var inFlight atomic.Int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := int64(time.Since(began).Seconds() * l.rate); l.offered.Load() < due; {
			n := l.offered.Add(1)
			if inFlight.Load() >= soakInFlight {
				l.fail("not started: 500 are in flight")
				continue
			}
			inFlight.Add(1)
			all.Go(func() {
				defer inFlight.Add(-1)
				// Requests in flight may finish, so that the end of the soak test fails no request.
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
				defer cancel()
				switch err := l.do(ctx, int(n)); {
				case err == nil:
					l.served.Add(1)
				case errors.Is(err, errWrong):
					l.wrong.Add(1)
					l.fail(err.Error())
				default:
					l.failed.Add(1)
					l.fail(err.Error())
				}
			})
		}
	}
}

var soakNumbers = regexp.MustCompile(`honest-\S+|127\.\S+|[0-9a-f]{16,}|\d{4,}`)

func (l *offer) fail(reason string) {
	reason = soakNumbers.ReplaceAllString(reason, "…")
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.reasons) < 50 {
		l.reasons[reason[:min(160, len(reason))]]++
	}
}

// soakGateway is a gateway of the soak test with its measurements.
type soakGateway struct {
	gatewayProcess
	address string
	name    string

	peak, last             int // MiB
	started, most, settled int // goroutines
	bounds                 map[string]float64
}

type soak struct {
	plain, tls *soakGateway
	roots      *x509.CertPool
	redis      *redistest.Server
	proxy      *faultproxy.Proxy
	nats       *exec.Cmd

	loads    []*offer
	clients  []*http.Client
	accepted sync.Map // paths of jobs that got 202
	came     sync.Map // paths of jobs that the upstream received
	crashed  atomic.Int64
	reloads  atomic.Int64
	faults   atomic.Int64
}

func (s *soak) gateways() []*soakGateway { return []*soakGateway{s.plain, s.tls} }

// app is the upstream of well-behaved clients. It echoes the request, after a 103 if the request asks for one.
func (s *soak) app() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/jobs/") {
			s.came.Store(r.URL.Path, true)
		}
		nonce := r.Header.Get("X-Nonce")
		w.Header().Set("X-Nonce", nonce) // set before the 103, because net/http may read the map after WriteHeader if the client has disconnected
		if strings.Contains(r.URL.Path, "/hints/") {
			w.Header().Set("Link", "</"+nonce+">")
			w.WriteHeader(http.StatusEarlyHints)
			select {
			case <-time.After(rand.N(20 * time.Millisecond)):
			case <-r.Context().Done():
				return
			}
		}
		if strings.Contains(r.URL.Path, "/tokens/") {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"nonce": %q, "usage": {"total_tokens": 7}}`, nonce)
			return
		}
		fmt.Fprintf(w, "%s %s %s", nonce, r.URL.Path, body)
	})
	large := bytes.Repeat([]byte("x"), 8<<20)
	mux.HandleFunc("/h1/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) })
	mux.HandleFunc("/h2/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) })
	mux.Handle("/socket/", websocket.Server{Handler: func(c *websocket.Conn) {
		var text string
		for websocket.Message.Receive(c, &text) == nil && websocket.Message.Send(c, text) == nil {
			continue
		}
	}})
	return mux
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := new(soak)
	directory := t.TempDir()
	authority := certtest.New(t)
	pair := authority.Issue(t, "localhost")
	file := func(name string) string { return filepath.Join(directory, name) }
	for name, b := range map[string][]byte{"ca": authority.PEM, "crt": pair.Cert, "key": pair.Key} {
		write(t, file(name), string(b))
	}
	s.roots = x509.NewCertPool()
	s.roots.AppendCertsFromPEM(authority.PEM)
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}

	first, second := httptest.NewServer(s.app()), httptest.NewServer(s.app())
	t.Cleanup(first.Close)
	t.Cleanup(second.Close)
	secure := httptest.NewUnstartedServer(s.app())
	secure.EnableHTTP2 = true
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	hostile := func(serve func(net.Listener)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go serve(l)
		return l.Addr().String()
	}
	section := fmt.Sprintf(`
  upstreams:
    h1: {servers: [%q, %q]}
    h2: {servers: %q, tls: {ca_file: %q, server_name: localhost}}
    calls: {servers: 'h2c://%s'}
    hostile: {servers: 'http://%s', timeouts: {response_header: 2s, idle: 2s}}
    hostile2: {servers: 'h2c://%s', timeouts: {response_header: 2s, idle: 2s}}
    none: {servers: 'http://%s'}
  routes:
    - {upstream: h1}
    - {path: /h2/**, upstream: h2}
    - {path: /test.Echo/**, upstream: calls, max_body_size: off}
    - {path: /evil/**, upstream: hostile}
    - {path: /evil2/**, upstream: hostile2}
    - {path: /none/**, upstream: none}`,
		first.URL, second.URL, secure.URL, file("ca"), echoServer(t), hostile(attacks.ServeHTTP1), hostile(attacks.ServeHTTP2), tcptest.FreeAddress(t))

	s.redis = redistest.Start(t)
	s.proxy = faultproxy.Start(t, s.redis.Addr)
	more := fmt.Sprintf("store: {kind: redis, url: 'redis://%s'}\nmetrics: {http_listener: true}\nlogging: {denials: off}\n", s.proxy.Addr)
	s.plain = &soakGateway{name: "plain"}
	s.plain.gatewayProcess, s.plain.address = startGatewayOn(t, "{address: '127.0.0.1:0'}", section, soakRules(20), more+fmt.Sprintf("queue: {url: %q}", s.startNATS(t)))
	s.tls = &soakGateway{name: "TLS"}
	s.tls.gatewayProcess, s.tls.address = startGatewayOn(t, fmt.Sprintf("{address: '127.0.0.1:0', tls: {cert_file: %q, key_file: %q}}", file("crt"), file("key")),
		section, soakRules(20), more+fmt.Sprintf("queue: {directory: %q}", memoryDir(t)))
	for _, g := range s.gateways() {
		g.sample()
		g.started = g.goroutines()
	}
	return s
}

// startNATS runs a NATS server as a separate process and returns its URL.
func (s *soak) startNATS(t *testing.T) string {
	t.Helper()
	s.nats = exec.Command(os.Args[0])
	s.nats.Env = append(os.Environ(), asNATS+"="+memoryDir(t), "GORACE=atexit_sleep_ms=0")
	s.nats.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.nats.Stderr = os.Stderr
	stdin, err := s.nats.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := s.nats.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.nats.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = s.nats.Process.Kill()
		_ = s.nats.Wait()
	})
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(url)
}

// sample records the memory of the process.
func (g *soakGateway) sample() {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	if err != nil {
		return
	}
	if _, rest, ok := strings.Cut(string(b), "VmRSS:"); ok {
		kib, _ := strconv.Atoi(strings.Fields(rest)[0])
		g.last = kib >> 10
		g.peak = max(g.peak, g.last)
	}
}

var soakMetric = regexp.MustCompile(`(?m)^(go_goroutines|sluice_bound_reached_total\{bound="([^"]*)"\}) (\S+)$`)

// goroutines returns the number of goroutines from the metrics, or 0 if the metrics cannot be read.
func (g *soakGateway) goroutines() (n int) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + g.http + "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	g.bounds = map[string]float64{}
	for _, m := range soakMetric.FindAllStringSubmatch(string(b), -1) {
		v, _ := strconv.ParseFloat(m[3], 64)
		if m[2] == "" {
			n = int(v)
		} else if v > 0 {
			g.bounds[m[2]] = v
		}
	}
	g.most = max(g.most, n)
	return n
}

// disturb stops the store, kills it and falsifies its replies, and stops the NATS server, one after the other, until ctx is done.
// Then it restores both.
func (s *soak) disturb(ctx context.Context, t *testing.T, each time.Duration) {
	lie := func(c *faultproxy.Conn, b []byte) []byte {
		if rand.IntN(4) > 0 {
			return b
		}
		return []byte(attacks.RedisReplies[rand.IntN(len(attacks.RedisReplies))])
	}
	check := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	faults := []struct{ begin, end func() }{
		{func() { s.redis.Kill() }, func() { check(s.redis.Restart()) }},
		{func() { check(s.nats.Process.Signal(syscall.SIGSTOP)) }, func() { check(s.nats.Process.Signal(syscall.SIGCONT)) }},
		{func() { s.proxy.Set(faultproxy.Fault{Change: lie}) }, s.proxy.Heal},
		{func() { check(s.redis.Stop()) }, func() { check(s.redis.Continue()) }},
		{func() { s.proxy.Set(faultproxy.Fault{Delay: 20 * time.Millisecond, Jitter: 100 * time.Millisecond}) }, s.proxy.Heal},
		{func() { s.proxy.Set(faultproxy.Fault{Refuse: true}) }, s.proxy.Heal},
		{func() { s.proxy.Set(faultproxy.Fault{Slice: true, Change: lie}) }, s.proxy.Heal},
	}
	for i := 0; ctx.Err() == nil; i++ {
		f := faults[i%len(faults)]
		f.begin()
		s.faults.Add(1)
		lasting(ctx, each)
		f.end()
		lasting(ctx, each)
	}
}

// lasting waits for d or until ctx is done.
func lasting(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// reload alternately writes valid and invalid rule files until ctx is done. The last one is valid.
func (s *soak) reload(ctx context.Context, t *testing.T, each time.Duration) {
	var broken []string
	for _, text := range attacks.RuleFiles() {
		broken = append(broken, text)
	}
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for i := 0; ctx.Err() == nil; i++ {
		text := soakRules(20 + i%3)
		switch i % 4 {
		case 1:
			text = broken[i/4%len(broken)]
		case 3:
			text = attacks.Slip(text, r)
			if lower := regexp.MustCompile(`0000/s}|concurrent: 1000}|max: 500}`); len(lower.FindAllString(text, -1)) != 6 {
				continue // a typo that results in another valid limit
			}
		}
		for _, g := range s.gateways() {
			write(t, g.rules, text)
			if i%5 == 0 {
				g.signal(t, syscall.SIGHUP)
			}
		}
		s.reloads.Add(1)
		lasting(ctx, each)
	}
	for _, g := range s.gateways() {
		write(t, g.rules, soakRules(20))
	}
}

// watch samples until ctx is done, and stops the soak test if a gateway exits.
func (s *soak) watch(ctx context.Context, stop context.CancelFunc) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.plain.ended:
			s.crashed.Add(1)
			stop()
			return
		case <-s.tls.ended:
			s.crashed.Add(1)
			stop()
			return
		}
		for _, g := range s.gateways() {
			g.sample()
			if i%10 == 0 {
				_ = g.goroutines()
			}
		}
	}
}

// lost waits up to a minute until the upstream has received every accepted job. Of the others it returns how many are queued or dead
// letters according to the gateway, and how many are lost.
func (s *soak) lost(ctx context.Context, t *testing.T) (accepted, undelivered, lost int) {
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	missing := map[string]string{} // status URLs by path
	for {
		accepted = 0
		clear(missing)
		s.accepted.Range(func(path, status any) bool {
			accepted++
			if _, ok := s.came.Load(path); !ok {
				missing[path.(string)] = status.(string)
			}
			return true
		})
		if len(missing) == 0 || wait.Err() != nil {
			break
		}
		lasting(wait, 100*time.Millisecond)
	}
	client := s.client(t, "127.0.8.10", false)
	for path, status := range missing {
		_, text, err := askOwn(ctx, client, http.MethodGet, status, nonce(), "")
		if _, ok := s.came.Load(path); ok {
			continue // delivered in the meantime
		}
		t.Logf("%s was not delivered: %.200s %v", path, text, err)
		if strings.Contains(text, `"state":"queued"`) || strings.Contains(text, `"state":"delivering"`) || strings.Contains(text, `"state":"dead"`) {
			undelivered++
		} else {
			lost++
		}
	}
	return accepted, undelivered, lost
}

// settle waits up to 10 s until a gateway has about as many goroutines as at its start.
func (g *soakGateway) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if g.settled = g.goroutines(); g.settled > 0 && g.settled < g.started+100 {
			break
		}
		lasting(ctx, 500*time.Millisecond)
	}
	g.sample()
}

// TestSoak runs everything at once against two gateways, one with and one without TLS: well-behaved clients of HTTP/1, HTTP/2, gRPC
// and WebSockets, the corpus of attacks, hostile upstreams, a store that is killed, stopped and sends invalid replies, a NATS server
// that is stopped, and invalid rule files. No gateway exits, no client gets another one's response, and well-behaved clients are
// served.
func TestSoak(t *testing.T) {
	// Not in parallel with other tests, because it uses all cores and other tests measure rates.
	duration := soakTime(t)
	s := newSoak(t)
	s.loads = s.traffic(t)
	ctx, stop := context.WithTimeout(t.Context(), duration)
	defer stop()
	var all, requests sync.WaitGroup
	each := min(3*time.Second, duration/20)
	all.Go(func() { s.disturb(ctx, t, each) })
	all.Go(func() { s.reload(ctx, t, min(2*time.Second, duration/20)) })
	all.Go(func() { s.watch(ctx, stop) })
	for _, l := range s.loads {
		l.reasons = map[string]int{}
		all.Go(func() { l.run(ctx, &requests) })
	}
	all.Wait()
	requests.Wait()
	accepted, undelivered, lost := 0, 0, 0
	if s.crashed.Load() == 0 {
		accepted, undelivered, lost = s.lost(t.Context(), t)
		for _, c := range s.clients {
			c.CloseIdleConnections()
		}
		for _, g := range s.gateways() {
			g.settle(t.Context())
		}
	}
	races := 0
	for _, g := range s.gateways() {
		g.signal(t, syscall.SIGTERM)
		select {
		case <-g.ended:
		case <-time.After(time.Minute):
			t.Errorf("%s: does not exit after SIGTERM", g.name)
			_ = g.cmd.Process.Signal(syscall.SIGQUIT)
			<-g.ended
		}
		log := g.log()
		for i, line := range log {
			if strings.Contains(line, "DATA RACE") || strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.Contains(line, "panic serving") || strings.Contains(line, "runtime error:") {
				races++
				if races < 5 {
					t.Errorf("%s:\n%s", g.name, strings.Join(log[i:min(len(log), i+60)], "\n"))
				}
			}
		}
		if g.err != nil {
			t.Errorf("%s exits with %v\n%s", g.name, g.err, strings.Join(log[max(0, len(log)-20):], "\n"))
		}
	}
	t.Logf("soak test of %v, race detector %v: %d crashes, %d races and panics, %d store failures, %d rule files, %d jobs accepted, %d queued or dead letters, %d lost\n%s",
		duration, raceEnabled, s.crashed.Load(), races, s.faults.Load(), s.reloads.Load(), accepted, undelivered, lost, s.report())
	s.judge(t, lost)
}

// judge fails the test if a requirement is not met.
func (s *soak) judge(t *testing.T, lost int) {
	t.Helper()
	var offered, served, wrong int64
	for _, l := range s.loads {
		wrong += l.wrong.Load()
		if l.honest {
			offered += l.offered.Load()
			served += l.served.Load()
		}
	}
	least := 0.99
	if raceEnabled {
		least = 0.5
	}
	if share := float64(served) / float64(offered); share < least {
		t.Errorf("%.2f %% of the requests of well-behaved clients were served, want %v %%", 100*share, 100*least)
	}
	if wrong > 0 || lost > 0 || s.crashed.Load() > 0 {
		t.Errorf("%d wrong responses, %d lost jobs, %d crashes", wrong, lost, s.crashed.Load())
	}
	for _, g := range s.gateways() {
		if g.peak > soakMemory && !raceEnabled {
			t.Errorf("%s used %d MiB, the documented sum is %d", g.name, g.peak, soakMemory)
		}
	}
}

// report returns a table of offered and served requests, and of each gateway.
func (s *soak) report() string {
	var b strings.Builder
	row := func(kind string, rate float64, offered, served, wrong int64) {
		fmt.Fprintf(&b, "%-28s %7.1f/s %9d %9d %7.2f %% %6d\n", kind, rate, offered, served, 100*float64(served)/float64(max(1, offered)), wrong)
	}
	fmt.Fprintf(&b, "%-28s %9s %9s %9s %9s %6s\n", "kind", "rate", "offered", "served", "share", "wrong")
	for _, honest := range []bool{true, false} {
		var rate float64
		var offered, served, wrong int64
		for _, l := range s.loads {
			if l.honest == honest {
				row(l.kind, l.rate, l.offered.Load(), l.served.Load(), l.wrong.Load())
				rate += l.rate
				offered += l.offered.Load()
				served += l.served.Load()
				wrong += l.wrong.Load()
			}
		}
		row(map[bool]string{true: "HONEST", false: "HOSTILE"}[honest], rate, offered, served, wrong)
	}
	for _, g := range s.gateways() {
		fmt.Fprintf(&b, "%s: memory at most %d MiB, at the end %d; goroutines %d at the start, at most %d, %d at the end; bounds reached: %v\n",
			g.name, g.peak, g.last, g.started, g.most, g.settled, g.bounds)
	}
	for _, l := range s.loads {
		var reasons []string
		for reason, n := range l.reasons {
			reasons = append(reasons, fmt.Sprintf("%6d %s", n, reason))
		}
		slices.SortFunc(reasons, func(a, b string) int { return strings.Compare(b, a) })
		for _, r := range reasons[:min(6, len(reasons))] {
			fmt.Fprintf(&b, "  %s: %s\n", l.kind, r)
		}
	}
	return b.String()
}
