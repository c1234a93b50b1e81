package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
)

// Large or endless responses of a trace collector lose traces and nothing else. The log names the collector in short lines.
func TestServeLyingCollector(t *testing.T) {
	t.Parallel()
	const long = 1 << 20
	for name, answer := range map[string]func(s grpc.ServerStream) error{
		"large": func(s grpc.ServerStream) error {
			return s.SendMsg(&collectorpb.ExportTraceServiceResponse{PartialSuccess: &collectorpb.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: strings.Repeat("x", long)}})
		},
		"endless": func(s grpc.ServerStream) error {
			for {
				if err := s.SendMsg(&collectorpb.ExportTraceServiceResponse{}); err != nil {
					return err
				}
			}
		},
		"status": func(grpc.ServerStream) error { return status.Error(codes.InvalidArgument, strings.Repeat("x", long)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
				if err := s.RecvMsg(&collectorpb.ExportTraceServiceRequest{}); err != nil {
					return err
				}
				return answer(s)
			}))
			address := serveListener(t, func(l net.Listener) { _ = server.Serve(l) })
			t.Cleanup(server.Stop)
			p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\ntracing: {endpoint: 'http://%s', sample_ratio: 1}\n",
				rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1000000}}\n"), address), "OTEL_BSP_SCHEDULE_DELAY=50")
			client := p.client(t)
			until(t, "the log names the collector", func() bool {
				if got := rlstest.Answer(t.Context(), client, "d", "k=v"); !strings.HasPrefix(got, "OK: ") {
					t.Fatal(got)
				}
				return strings.Contains(strings.Join(p.log(), "\n"), "telemetry export failed")
			})
			for _, line := range p.log() {
				if len(line) > 4<<10 || strings.Contains(line, "xxx") {
					t.Errorf("a line of %d bytes: %.300s", len(line), line)
				}
			}
			p.bounded(t, 256)
		})
	}
}

// The service does not use a queue directory with a subdirectory of another user.
func TestServeQueueDirectoryOfAnotherUser(t *testing.T) {
	t.Parallel()
	given := t.TempDir()
	own := filepath.Join(given, "sluice")
	if err := os.Mkdir(own, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(own, 12345, 12345); err != nil {
		t.Logf("needs root to create such a directory: %v", err)
		return
	}
	file := filepath.Join(given, "sluice.yaml")
	write(t, file, fmt.Sprintf("listeners: {grpc: {address: '127.0.0.1:0'}, http: {address: '127.0.0.1:0'}, admin: {address: '127.0.0.1:0'}}\nqueue: {directory: %q}\n", given))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], "serve", "--config", file)
	c.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	out, err := c.CombinedOutput()
	var ended *exec.ExitError
	if want := own + " belongs to another user: remove it, or set queue.directory to another"; !errors.As(err, &ended) || ended.ExitCode() < 1 || !strings.Contains(string(out), want) {
		t.Errorf("%v, want %q in\n%s", err, want, out)
	}
	if left, err := os.ReadDir(own); err != nil || len(left) > 0 {
		t.Errorf("the service wrote %v, %v", left, err)
	}
}

// Queue items in corrupt blocks of a stream are counted and logged as errors, and the other items stay queued.
func TestServeQueueBlocksLost(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(size int) int{
		"first": func(int) int { return 60 }, "middle": func(size int) int { return size / 2 }, "last": func(size int) int { return size - 40 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := memoryDir(t)
			gateway := fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", application(t).URL)
			const rules = "rules: [{name: all, limit: 1/h, on_limit: queue}]"
			more := fmt.Sprintf("metrics: {http_listener: true}\nqueue: {directory: %q}", directory)
			p, address := startGateway(t, gateway, rules, more)
			request(t, http.MethodPost, address)
			for range 5 {
				if status, _ := request(t, http.MethodPost, address); status != http.StatusAccepted {
					t.Fatalf("%d instead of 202", status)
				}
			}
			p.end(t)
			blocks, err := filepath.Glob(filepath.Join(directory, "sluice/jetstream/$G/streams/*-items/msgs/*.blk"))
			if err != nil || len(blocks) != 1 {
				t.Fatal(blocks, err)
			}
			b := []byte(read(t, blocks[0]))
			copy(b[at(len(b)):], strings.Repeat("\xff", 20))
			write(t, blocks[0], string(b))
			p = launchGateway(t, "{address: '127.0.0.1:0'}", gateway, rules, more)
			if line := p.await(t, "queue items lost"); !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "items=1 ") || !strings.Contains(line, directory) {
				t.Error(line)
			}
			p.http = served.FindStringSubmatch(p.await(t, "msg=serving"))[2]
			until(t, "one of the others is delivered, and three wait", func() bool {
				text := p.metrics(t)
				return strings.Contains(text, `sluice_queue_events_total{event="lost"} 1`+"\n") && strings.Contains(text, `sluice_queue_items{state="queued"} 3`+"\n")
			})
		})
	}
}

// Queue items that are missing at the start are counted and logged as errors, with any kind of damage to the blocks and any exit of
// the previous process. The other items are delivered.
func TestServeQueueBlocksRemoved(t *testing.T) {
	t.Parallel()
	const accepted = 9 // four to a block
	gateway := func(t *testing.T, deliver http.HandlerFunc) string {
		upstream := httptest.NewServer(deliver)
		t.Cleanup(upstream.Close)
		return fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", upstream.URL)
	}
	const rules = "rules: [{name: all, limit: %s, on_limit: queue}]"
	more := func(directory string) string {
		return fmt.Sprintf("metrics: {http_listener: true}\nqueue: {directory: %q, max_total_size: 16MiB, max_total_size_per_key: 16MiB, max_items_per_key: 1000}", directory)
	}
	const blocks = "sluice/jetstream/$G/streams/*-items/msgs/*.blk"
	nothing := func([]string) error { return nil }
	removed := func(n int) func(b []string) error { return func(b []string) error { return os.Remove(b[n]) } }
	emptied := func(b []string) error { return os.Truncate(b[1], 0) }
	truncated := func(b []string) error { return os.Truncate(b[0], 2<<20) }
	cases := map[string]map[string]func(blocks []string) error{
		"killed": {
			"nothing": nothing, "first": removed(0), "last": removed(2), "emptied": emptied, "truncated": truncated,
			"all": func(b []string) error { return os.RemoveAll(filepath.Dir(b[0])) },
		},
		"stopped": {"nothing": nothing, "middle": removed(1), "truncated": truncated},
	}
	if os.Getenv("SLUICE_SOAK") != "" {
		maps.Copy(cases["killed"], cases["stopped"])
		maps.Copy(cases["stopped"], cases["killed"])
	}
	for end, damages := range cases {
		filled := memoryDir(t)
		p, address := startGateway(t, gateway(t, func(http.ResponseWriter, *http.Request) {}), fmt.Sprintf(rules, "1/h"), more(filled))
		for n := range accepted + 1 {
			resp, err := http.Post("http://"+address+"/", "text/plain", strings.NewReader(strings.Repeat("x", 900<<10)))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if n > 0 && resp.StatusCode != http.StatusAccepted {
				t.Fatalf("%d instead of 202", resp.StatusCode)
			}
		}
		if end == "killed" {
			_ = p.cmd.Process.Kill()
			p.killed(t)
		} else {
			p.end(t)
		}
		for name, damage := range damages {
			t.Run(end+"/"+name, func(t *testing.T) {
				t.Parallel()
				directory := filepath.Join(memoryDir(t), "queue")
				if err := os.CopyFS(directory, os.DirFS(filled)); err != nil {
					t.Fatal(err)
				}
				found, err := filepath.Glob(filepath.Join(directory, blocks))
				if err != nil || len(found) != 3 {
					t.Fatal(found, err)
				}
				slices.Sort(found)
				if err := damage(found); err != nil {
					t.Fatal(err)
				}
				var mu sync.Mutex
				delivered := map[string]bool{} // by key
				gateway := gateway(t, func(_ http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					delivered[r.Header.Get("Idempotency-Key")] = true
				})
				p := launchGateway(t, "{address: '127.0.0.1:0'}", gateway, fmt.Sprintf(rules, "1000/s"), more(directory))
				line := ""
				if name != "nothing" {
					line = p.await(t, "queue items lost")
				}
				p.http = served.FindStringSubmatch(p.await(t, "msg=serving"))[2]
				until(t, "the rest is delivered", func() bool {
					text := p.metrics(t)
					return strings.Contains(text, `sluice_queue_items{state="queued"} 0`+"\n") && strings.Contains(text, `sluice_queue_items{state="delivering"} 0`+"\n")
				})
				if status, text := p.ready(t); status != http.StatusOK {
					t.Errorf("/readyz: %d %s", status, text)
				}
				mu.Lock()
				lost := accepted - len(delivered)
				mu.Unlock()
				if (lost == 0) != (name == "nothing") {
					t.Errorf("%d of %d are lost", lost, accepted)
				}
				if want := fmt.Sprintf(`sluice_queue_events_total{event="lost"} %d`+"\n", lost); !strings.Contains(p.metrics(t), want) {
					t.Errorf("no %q in\n%s", want, p.metrics(t))
				}
				if want := fmt.Sprintf("items=%d accepted_from=", lost); lost > 0 && (!strings.Contains(line, "level=ERROR") || !strings.Contains(line, want)) {
					t.Errorf("no %q in\n%s", want, line)
				}
				if name != "truncated" {
					return
				}
				p.end(t)
				p, _ = startGateway(t, gateway, fmt.Sprintf(rules, "1000/s"), more(directory))
				if text := p.metrics(t); !strings.Contains(text, `sluice_queue_events_total{event="lost"} 0`+"\n") {
					t.Errorf("the loss is counted again:\n%s", strings.Join(p.log(), "\n"))
				}
			})
		}
	}
}
