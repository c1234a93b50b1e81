package main

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/otlptest"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

const (
	aTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	aParent = "00f067aa0ba902b7"
)

// askTraced sends a request with a trace context.
func askTraced(t *testing.T, client pb.RateLimitServiceClient, flags, ask string) string {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+aTrace+"-"+aParent+"-"+flags)
	return rlstest.Answer(ctx, client, "d", ask)
}

// end stops the service and waits for its exit.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	<-p.ended
}

// spanAttribute returns a string or number attribute of a span, or "".
func spanAttribute(s *tracepb.Span, name string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == name {
			if v := a.GetValue().GetStringValue(); v != "" {
				return v
			}
			return fmt.Sprint(a.GetValue().GetIntValue())
		}
	}
	return ""
}

// Spans of requests belong to the traces of the callers, with store calls as child spans. Unsent spans are sent at the shutdown.
// Spans contain no keys.
func TestServeTraces(t *testing.T) {
	collector := otlptest.Start(t)
	rules := rulesDir(t, "  - {key: user, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	write(t, filepath.Join(rules, "n.yaml"), "attributes: {user: {header: X-User}}\nrules: [{name: posts, per: user, limit: {rate: 0/h, algorithm: fixed_window}}]\n")
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nstore: {kind: redis, url: '%s', timeout: 5s}\ntracing: {endpoint: 'http://%s', sample_ratio: 1}\n",
		rules, redistest.Start(t).URL(), collector.Addr), "OTEL_RESOURCE_ATTRIBUTES=zone=a")
	client := p.client(t)
	const ask = "user=canary-5319"
	for i, want := range []string{"OK", "OVER_LIMIT"} {
		if got := askTraced(t, client, "01", ask); !strings.HasPrefix(got, want+":") {
			t.Fatalf("request %d: %s", i, got)
		}
	}
	askTraced(t, client, "00", ask)                    // the caller does not sample the trace
	rlstest.Answer(t.Context(), client, "d", "user=x") // a new trace
	rlstest.Answer(t.Context(), client, "", "user=x")  // an error
	for _, path := range []string{"/canary-5319", "/v1/auth"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.http+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Traceparent": "00-" + aTrace + "-" + aParent + "-01", "X-User": "canary", "X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/posts/canary", "X-Forwarded-Host": "h", "X-Forwarded-For": "192.0.2.1",
		} {
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	p.end(t)

	below, requests := map[string]*tracepb.Span{}, []*tracepb.Span{}
	for _, s := range collector.Spans() {
		if s.GetName() == "store" {
			below[string(s.GetParentSpanId())] = s
		} else {
			requests = append(requests, s)
		}
	}
	if len(requests) != 6 || len(below) != 4 {
		t.Fatalf("%d request spans and %d store spans: %v", len(requests), len(below), collector.Spans())
	}
	const rpc = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	for i, want := range []struct{ name, parent, outcome, deniedBy, code, status, rule string }{
		{rpc, aParent, "allowed", "", "0", "", "d/user allowed store"},
		{rpc, aParent, "denied", "d/user", "0", "", "d/user denied store"},
		{rpc, "", "allowed", "", "0", "", "d/user allowed store"},
		{rpc, "", "", "", "3", "InvalidArgument", ""},
		{"GET", aParent, "", "", "", "", ""},
		{"/v1/auth", aParent, "", "posts", "", "", "posts denied store"},
	} {
		s := requests[i]
		rule := ""
		for _, e := range s.GetEvents() {
			on := &tracepb.Span{Attributes: e.GetAttributes()}
			rule += strings.Join([]string{spanAttribute(on, "sluice.rule"), spanAttribute(on, "sluice.result"), spanAttribute(on, "sluice.source")}, " ")
		}
		got := struct{ name, parent, outcome, deniedBy, code, status, rule string }{
			s.GetName(), hex.EncodeToString(s.GetParentSpanId()), spanAttribute(s, "sluice.result"), spanAttribute(s, "sluice.denied_by_rule"),
			spanAttribute(s, "rpc.grpc.status_code"), s.GetStatus().GetMessage(), rule,
		}
		if got != want || s.GetKind() != tracepb.Span_SPAN_KIND_SERVER || (want.parent != "") != (hex.EncodeToString(s.GetTraceId()) == aTrace) {
			t.Errorf("request %d: got\n%+v, want\n%+v in %v", i, got, want, s)
		}
		store := below[string(s.GetSpanId())]
		if (store != nil) != (want.rule != "") || store != nil && (string(store.GetTraceId()) != string(s.GetTraceId()) || spanAttribute(store, "sluice.store_kind") != "redis") {
			t.Errorf("request %d: the store span is %v, the request span %v", i, store, s)
		}
	}
	for i, want := range map[int]string{4: "404", 5: "429"} {
		if got := spanAttribute(requests[i], "http.response.status_code"); got != want {
			t.Errorf("the status is %s, want %s", got, want)
		}
	}
	all := fmt.Sprint(collector.Traces())
	if strings.Contains(all, "canary") {
		t.Errorf("a span contains a key: %s", all)
	}
	for _, part := range []string{"service.name", "sluice", "service.version", "zone"} {
		if !strings.Contains(all, part) {
			t.Errorf("no %s in the spans: %s", part, all)
		}
	}
}

// The service connects to the collector over TLS, and reads the headers file before each export.
func TestServeTracesSecurely(t *testing.T) {
	authority := certtest.New(t)
	directory := t.TempDir()
	in := func(name string) string { return filepath.Join(directory, name) }
	own := authority.Issue(t, "localhost")
	pair, err := tls.X509KeyPair(own.Cert, own.Key)
	if err != nil {
		t.Fatal(err)
	}
	collector := otlptest.Start(t, grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})))
	_, port, _ := net.SplitHostPort(collector.Addr)
	write(t, in("ca"), string(authority.PEM))
	write(t, in("headers"), "# for the collector\nAuthorization: Bearer old\n")
	p := startServe(t, fmt.Sprintf("tracing: {endpoint: 'https://localhost:%s', sample_ratio: 1, headers_file: %q, tls: {ca_file: %q}}\n", port, in("headers"), in("ca")))
	rlstest.Answer(t.Context(), p.client(t), "demo", "remote_address=10.0.0.1")
	write(t, in("headers"), "# for the collector\nAuthorization: Bearer new\n")
	p.end(t)
	if got := collector.Header("authorization"); len(collector.Spans()) != 1 || len(got) != 1 || got[0] != "Bearer new" {
		t.Errorf("%d spans with %v", len(collector.Spans()), got)
	}

	file := in("sluice.yaml")
	write(t, in("headers"), "Bearer secret\n")
	write(t, file, fmt.Sprintf("tracing: {endpoint: 'http://h', headers_file: %q}\n", in("headers")))
	if code, _, stderr := sluiceRun(t, "serve", "--config", file); code != term.ExitWrong || !strings.Contains(stderr, "headers:1: write name: value") || strings.Contains(stderr, "secret") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// A collector that is unavailable or never responds does not delay requests, even if there are more spans than the buffer holds. The
// service still shuts down.
func TestServeCollectorAway(t *testing.T) {
	silent := tcptest.Serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	for name, address := range map[string]string{"away": tcptest.FreeAddress(t), "silent": silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\ntracing: {endpoint: 'http://%s', sample_ratio: 1}\n",
				rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1000000}}\n"), address))
			client := p.client(t)
			req, err := rlstest.Ask("d", "k=v")
			if err != nil {
				t.Fatal(err)
			}
			l := startLoad(t, func(ctx context.Context) error {
				_, err := client.ShouldRateLimit(ctx, req)
				return err
			})
			l.more(t, 8000)
			l.end()
			// If requests had waited for room in the buffer, the collector would have failed six times by now, which takes 30 s.
			if n := strings.Count(strings.Join(p.log(), "\n"), "msg=\"telemetry "); n > 3 {
				t.Errorf("requests waited for the collector, which failed %d times", n)
			}
			p.end(t)
			if all := strings.Join(p.log(), "\n"); !strings.Contains(all, "telemetry flush failed") || len(p.log()) > 20 {
				t.Errorf("the log line is %s", all)
			}
		})
	}
}

// Metrics are exported too, with the same names as in Prometheus, and once more at the shutdown. They contain no keys.
func TestServeSendsMetrics(t *testing.T) {
	collector := otlptest.Start(t)
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nmetrics: {otlp: {endpoint: 'http://%s', interval: 1h}}\n",
		rulesDir(t, "  - {key: user, rate_limit: {unit: year, requests_per_unit: 2}}\n"), collector.Addr))
	client := p.client(t)
	for range 5 {
		rlstest.Answer(t.Context(), client, "d", "user=canary-5319")
	}
	p.end(t)
	if got := collector.Sum("sluice_decisions_total", "rule", "d/user"); got != 5 {
		t.Errorf("%v decisions were sent", got)
	}
	if got := collector.Sum("sluice_decisions_total", "result", "denied"); got != 3 {
		t.Errorf("%v denials were sent", got)
	}
	all := fmt.Sprint(collector.Metrics())
	for _, part := range []string{"sluice_rule_limit", "sluice_decision_duration_seconds", "service.name"} {
		if !strings.Contains(all, part) {
			t.Errorf("%s is not exported", part)
		}
	}
	if strings.Contains(all, "canary") {
		t.Errorf("a metric contains a key: %s", all)
	}
}
