package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice/internal/rlstest"
)

// A collector whose responses are large or do not end costs traces, and no more: the log names it in lines that are not long.
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
			address := listen(t, func(l net.Listener) { _ = server.Serve(l) })
			t.Cleanup(server.Stop)
			p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\ntracing: {endpoint: 'http://%s', sample: 1}\n",
				rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1000000}}\n"), address), "OTEL_BSP_SCHEDULE_DELAY=50")
			client := p.client(t)
			until(t, "the log says it", func() bool {
				if got := rlstest.Answer(t.Context(), client, "d", "k=v"); !strings.HasPrefix(got, "OK: ") {
					t.Fatal(got)
				}
				return strings.Contains(strings.Join(p.log(), "\n"), "the collector did not take all")
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

// A directory inside the queue's that belongs to another user is not used.
func TestServeQueueDirectoryOfAnotherUser(t *testing.T) {
	t.Parallel()
	given := t.TempDir()
	own := filepath.Join(given, "sluice")
	if err := os.Mkdir(own, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(own, 12345, 12345); err != nil {
		t.Logf("only root can make such a directory: %v", err)
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
		t.Errorf("it wrote %v, %v", left, err)
	}
}

// Requests in blocks that are corrupt are counted and logged as errors, wherever they are, and the others wait on.
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
			more := fmt.Sprintf("metrics: {on_http: true}\nqueue: {directory: %q}", directory)
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
			if line := p.await(t, "queued requests lost"); !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "items=1 ") || !strings.Contains(line, directory) {
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
