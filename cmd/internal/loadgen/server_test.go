package loadgen_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

func parse(t *testing.T, p *loadgen.Patterns, text string) loadgen.Pattern {
	t.Helper()
	out, err := p.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func address(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// target returns a target that is closed when the test ends.
func target(t *testing.T, to loadgen.Target, err error) loadgen.Target {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close() })
	return to
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// limiting counts requests and responses.
type limiting struct {
	pb.UnimplementedRateLimitServiceServer
	asked, allowed, denied, failed atomic.Int64
	wrong                          atomic.Pointer[string]
	die                            func() // called after the 500th request
}

// verdict returns the kind of the response to the nth request. Most are allowed.
func (l *limiting) verdict() loadgen.Kind {
	n := l.asked.Add(1)
	if n == 500 && l.die != nil {
		go l.die()
	}
	switch n % 5 {
	case 0:
		l.denied.Add(1)
		return loadgen.Denied
	case 1:
		l.failed.Add(1)
		return loadgen.Failed
	}
	l.allowed.Add(1)
	return loadgen.Allowed
}

func (l *limiting) fault(text string) { l.wrong.CompareAndSwap(nil, &text) }

// agrees fails the test unless the result matches the counts of the server.
func (l *limiting) agrees(t *testing.T, r *loadgen.Result) {
	t.Helper()
	if text := l.wrong.Load(); text != nil {
		t.Errorf("the server received %s", *text)
	}
	if r.Sum.Allowed != l.allowed.Load() || r.Sum.Denied != l.denied.Load() || r.Sum.Failed != l.failed.Load() || r.Requests() != l.asked.Load() {
		t.Errorf("allowed %d, denied %d, failed %d; by the server %d, %d, %d of %d",
			r.Sum.Allowed, r.Sum.Denied, r.Sum.Failed, l.allowed.Load(), l.denied.Load(), l.failed.Load(), l.asked.Load())
	}
}

// survives fails the test unless the end of a server is reported as errors without waiting for the timeout.
func (l *limiting) survives(t *testing.T, r *loadgen.Result) {
	t.Helper()
	without := int64(0)
	for _, n := range r.Reasons {
		without += n
	}
	if without == 0 || r.Sum.Allowed == 0 || r.Sum.Allowed+r.Sum.Denied+r.Sum.Failed != r.Requests() {
		t.Errorf("%s, without a response %v", counts(r), r.Reasons)
	}
	for text := range r.Reasons {
		if text == "" || text == "no response in time" {
			t.Errorf("the end of a server is reported as %q", text)
		}
	}
}

func (l *limiting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		l.fault(err.Error())
	}
	if r.Method != http.MethodPost || !strings.HasPrefix(r.URL.Path, "/posts/") || r.Header.Get("X-User") == "" || string(body) != "hello" {
		l.fault(fmt.Sprintf("%s %s %v %q", r.Method, r.URL, r.Header, body))
	}
	if want := r.Header.Get("X-User"); !strings.HasSuffix(r.URL.Path, "/"+want) {
		l.fault(r.URL.Path + " by " + want)
	}
	switch l.verdict() {
	case loadgen.Allowed:
		w.WriteHeader(http.StatusCreated)
	case loadgen.Denied:
		w.WriteHeader(http.StatusTooManyRequests)
	default:
		w.WriteHeader(http.StatusFound) // not followed
	}
}

func httpPlan(t *testing.T, base string) loadgen.Plan {
	t.Helper()
	p := loadgen.Patterns{Keys: 20}
	to, err := loadgen.NewHTTP(t.Context(), loadgen.HTTP{
		URL: address(t, base), Full: parse(t, &p, base+"/posts/{key}"), Callers: 8, Method: http.MethodPost,
		Headers: []loadgen.Header{{Name: "X-User", Value: parse(t, &p, "{key}")}}, Body: parse(t, &p, "hello"),
	})
	return loadgen.Plan{
		Target: target(t, to, err), Callers: 8, Requests: 2000, Timeout: 30 * time.Second, Keys: loadgen.Keys{Count: p.Count(), Seed: 1},
	}
}

func TestHTTP(t *testing.T) {
	l := new(limiting)
	server := httptest.NewServer(l)
	defer server.Close()
	for _, rate := range []float64{0, 20_000} {
		p := httpPlan(t, server.URL)
		p.Rate = rate
		l.asked.Store(0)
		l.allowed.Store(0)
		l.denied.Store(0)
		l.failed.Store(0)
		r := run(t, p)
		l.agrees(t, r)
		if r.Requests() != 2000 || r.Codes["201"] != 1200 || r.Codes["429"] != 400 || r.Codes["302"] != 400 {
			t.Errorf("%d requests, %v", r.Requests(), r.Codes)
		}
	}
}

func TestHTTPServerDies(t *testing.T) {
	l := new(limiting)
	server := httptest.NewServer(l)
	l.die = func() {
		server.Listener.Close()
		server.CloseClientConnections()
	}
	p := httpPlan(t, server.URL)
	p.Requests = 700
	l.survives(t, run(t, p))
}

func (l *limiting) ShouldRateLimit(_ context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	d := r.GetDescriptors()
	if r.GetDomain() != "demo" || len(d) != 2 || len(d[0].GetEntries()) != 2 || r.GetHitsAddend() != 3 ||
		d[1].GetEntries()[0].GetKey() != "path" || d[1].GetEntries()[0].GetValue() != "/" {
		l.fault(r.String())
	} else if e := d[0].GetEntries(); e[0].GetKey() != "user" || !strings.HasPrefix(e[0].GetValue(), "u") || e[1].GetValue() != "x"+e[0].GetValue()[1:] {
		l.fault(r.String())
	}
	switch l.verdict() {
	case loadgen.Allowed:
		return &pb.RateLimitResponse{
			OverallCode: pb.RateLimitResponse_OK, Statuses: []*pb.RateLimitResponse_DescriptorStatus{{Code: pb.RateLimitResponse_OVER_LIMIT}},
		}, nil
	case loadgen.Denied:
		return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OVER_LIMIT}, nil
	}
	return &pb.RateLimitResponse{}, nil
}

// serveRLS returns a plan for a gRPC server and a function that stops it.
func serveRLS(t *testing.T, l *limiting) (loadgen.Plan, func()) {
	t.Helper()
	listener, server := listen(t), grpc.NewServer()
	pb.RegisterRateLimitServiceServer(server, l)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	p := loadgen.Patterns{Keys: 20}
	to, err := loadgen.NewRLS(t.Context(), loadgen.RLS{
		URL: address(t, "rls://"+listener.Addr().String()), Connections: 2, Domain: "demo", Hits: 3,
		Descriptors: [][]loadgen.Entry{
			{
				{Key: parse(t, &p, "user"), Value: parse(t, &p, "u{key}")},
				{Key: parse(t, &p, "again"), Value: parse(t, &p, "x{key}")},
			},
			{{Key: parse(t, &p, "path"), Value: parse(t, &p, "/")}},
		},
	})
	return loadgen.Plan{
		Target: target(t, to, err), Callers: 8, Requests: 2000, Timeout: 30 * time.Second, Keys: loadgen.Keys{Count: p.Count(), Seed: 1},
	}, server.Stop
}

func TestRLS(t *testing.T) {
	l := new(limiting)
	p, _ := serveRLS(t, l)
	r := run(t, p)
	l.agrees(t, r)
	if r.Requests() != 2000 || r.Codes["OK"] != 1200 || r.Codes["OVER_LIMIT"] != 400 || r.Codes["UNKNOWN"] != 400 {
		t.Errorf("%d requests, %v", r.Requests(), r.Codes)
	}
}

func TestRLSServerDies(t *testing.T) {
	l := new(limiting)
	p, stop := serveRLS(t, l)
	l.die, p.Requests = stop, 700
	l.survives(t, run(t, p))
}

// serveRESP replies to every command, also pipelined ones, with say, which gets the number of previous commands of the
// connection.
func serveRESP(t *testing.T, say func(before int, command []string) string) *url.URL {
	t.Helper()
	return address(t, "redis://"+tcptest.Serve(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for before := 0; ; before++ {
			command, err := readCommand(in)
			if err != nil {
				return
			}
			answer := say(before, command)
			if _, err := io.WriteString(c, answer); err != nil || answer == "" {
				return
			}
		}
	}))
}

func readCommand(in *bufio.Reader) (words []string, err error) {
	var n, size int
	if _, err := fmt.Fscanf(in, "*%d\r\n", &n); err != nil {
		return nil, err
	}
	for range n {
		if _, err := fmt.Fscanf(in, "$%d\r\n", &size); err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return nil, err
		}
		words = append(words, string(b[:size]))
	}
	return words, nil
}

func respPlan(t *testing.T, u *url.URL, password string) loadgen.Plan {
	t.Helper()
	p := loadgen.Patterns{Keys: 20}
	to, err := loadgen.NewRESP(t.Context(), loadgen.RESP{
		URL: u, Key: parse(t, &p, "k{key}"), Burst: 10, Count: 100, Period: 60, Quantity: 2, Password: password,
	})
	return loadgen.Plan{
		Target: target(t, to, err), Callers: 8, Pipeline: 16, Requests: 2000, Timeout: 30 * time.Second,
		Keys: loadgen.Keys{Count: p.Count(), Seed: 1},
	}
}

func TestRESP(t *testing.T) {
	l := new(limiting)
	u := serveRESP(t, func(_ int, c []string) string {
		if len(c) == 2 && c[0] == "AUTH" {
			if c[1] == "secret" {
				return "+OK\r\n"
			}
			return "-WRONGPASS no\r\n"
		}
		if len(c) != 6 || c[0] != "CL.THROTTLE" || !strings.HasPrefix(c[1], "k") || strings.Join(c[2:], " ") != "10 100 60 2" {
			l.fault(strings.Join(c, " "))
		}
		switch l.verdict() {
		case loadgen.Allowed:
			return "*5\r\n:0\r\n:11\r\n:5\r\n:-1\r\n:30\r\n"
		case loadgen.Denied:
			return "*5\r\n:1\r\n:11\r\n:0\r\n:7\r\n:66\r\n"
		}
		return "-ERR no\r\n"
	})
	r := run(t, respPlan(t, u, "secret"))
	l.agrees(t, r)
	if r.Requests() != 2000 || r.Codes["allowed"] != 1200 || r.Codes["denied"] != 400 || r.Codes["ERR no"] != 400 {
		t.Errorf("%d requests, %v", r.Requests(), r.Codes)
	}
	if _, err := loadgen.Run(t.Context(), respPlan(t, u, "wrong")); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v", err)
	}
}

// An invalid reply to CL.THROTTLE is an error of its request and never a reply to another one.
func TestRESPServerThatErrs(t *testing.T) {
	for answer, want := range map[string]string{
		"":                             "the server closed the connection",
		"+OK\r\n":                      `the reply "+OK" is not a reply to CL.THROTTLE`,
		"*5\r\n:0\r\n$1\r\n":           `the reply contains "$1" instead of a number`,
		"HTTP/1.1 400 Bad Request\r\n": "is not a reply to CL.THROTTLE",
		"garbage\n":                    "is not Redis' protocol",
	} {
		u := serveRESP(t, func(int, []string) string { return answer })
		p := respPlan(t, u, "")
		p.Requests = 50
		r := run(t, p)
		found := false
		for text := range r.Reasons {
			found = found || strings.Contains(text, want)
		}
		if r.Sum.Failed != 50 || r.Requests() != 50 || !found {
			t.Errorf("%q: %d failed, %v, want %q", answer, r.Sum.Failed, r.Reasons, want)
		}
	}
}

// Replies that are pending after an error are not read as replies to later requests.
func TestRESPAnswersStayWithTheirRequests(t *testing.T) {
	u := serveRESP(t, func(before int, _ []string) string {
		if before == 0 {
			return "+OK\r\n"
		}
		return "*5\r\n:0\r\n:11\r\n:5\r\n:-1\r\n:30\r\n"
	})
	p := respPlan(t, u, "")
	p.Callers, p.Requests = 1, 64
	if r := run(t, p); r.Sum.Allowed != 0 || r.Sum.Failed != 64 {
		t.Errorf("%d allowed, %d failed: %v", r.Sum.Allowed, r.Sum.Failed, r.Reasons)
	}
}

func TestNobodyListens(t *testing.T) {
	l := listen(t)
	u := address(t, "http://"+l.Addr().String())
	l.Close()
	for name, err := range map[string]error{
		"rls":  second(loadgen.NewRLS(t.Context(), loadgen.RLS{URL: u})),
		"http": second(loadgen.NewHTTP(t.Context(), loadgen.HTTP{URL: u})),
		"resp": second(loadgen.NewRESP(t.Context(), loadgen.RESP{URL: u})),
	} {
		if err == nil || !strings.Contains(err.Error(), "is the server running") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second(_ loadgen.Target, err error) error { return err }

func TestLoopback(t *testing.T) {
	for text, want := range map[string]bool{
		"http://127.0.0.1:80/": true, "http://127.9.9.9/": true, "rls://[::1]:8081": true, "http://localhost:8080": true,
		"http://192.0.2.1/": false, "http://0.0.0.0:80": false, "http://[2001:db8::1]:80": false, "http://10.0.0.1": false,
	} {
		if got, err := loadgen.Loopback(t.Context(), address(t, text)); got != want {
			t.Errorf("%s: %t, %v", text, got, err)
		}
	}
}
