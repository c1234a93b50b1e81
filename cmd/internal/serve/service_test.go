package serve_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/serve"
)

func parse(t *testing.T, text string) config.Config {
	t.Helper()
	cfg, err := config.Parse("sluice.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

const anywhere = "listeners: {grpc: {address: '127.0.0.1:0'}, http: {address: '127.0.0.1:0'}, admin: {address: 'off'}}\n"

// A service runs in this process, on free ports, and shuts down when its context is done.
func TestService(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := parse(t, anywhere)
	cfg.Drain.Delay = 0
	var log bytes.Buffer
	beside := make(chan struct{})
	s, err := serve.New(ctx, cfg, serve.Options{
		Log: &log, Background: func(context.Context, *serve.Service) { close(beside) },
	})
	if err != nil {
		t.Fatal(err)
	}
	addrs := s.Addrs()
	if len(addrs) != 2 || addrs["grpc"] == nil || addrs["http"] == nil {
		t.Fatalf("it listens on %v", addrs)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-beside
	answer, err := http.Post("http://"+addrs["http"].String()+"/v1/check", "application/json",
		strings.NewReader(`{"domain":"demo","descriptors":[[{"key":"remote_address","value":"10.0.0.1"}]]}`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("%s %v: %s", answer.Status, err, body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "stopped") {
		t.Errorf("the log is\n%s", &log)
	}
}

// New and Check return the same errors about files that cannot be opened.
func TestServiceCannotOpen(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	cfg := parse(t, anywhere+"check_api: {reservation_secret_file: "+missing+"}\n")
	if s, err := serve.New(t.Context(), cfg, serve.Options{Log: io.Discard}); s != nil || err == nil || !strings.Contains(err.Error(), "check_api.reservation_secret_file") {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := serve.Check(&cfg, "v0"); err == nil || !strings.Contains(err.Error(), "check_api.reservation_secret_file") {
		t.Errorf("check says %v", err)
	}
}
