// Package prometheustest starts a real Prometheus for tests, and runs promtool.
//
//	p := prometheustest.Start(t, config, map[string]string{"alerts.yaml": alerts})
//	series, err := p.Query(`up{job="sluice"}`)
//
// The server listens on a free port of the loopback interface and is stopped at the end of the test. If Prometheus is
// not installed, the test is skipped, or fails if the environment has CI=true.
package prometheustest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// Server is a running Prometheus.
type Server struct {
	URL string

	log  bytes.Buffer  // output of the process; read after it has ended
	gone chan struct{} // closed when the process has ended
}

// Need skips the test if Prometheus is not installed.
func Need(t testing.TB) {
	t.Helper()
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is not installed, and with CI=true no test may be skipped: apt-get install prometheus", program)
			}
			t.Skipf("%s is not installed: apt-get install prometheus", program)
		}
	}
}

// Start starts a server with a configuration and the files that it names, and returns when it is ready.
func Start(t testing.TB, config string, files map[string]string) *Server {
	t.Helper()
	Need(t)
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("prometheus.yaml", config)
	for name, text := range files {
		write(name, text)
	}
	s, stop := start(t, dir)
	t.Cleanup(stop)
	if !s.await() {
		stop()
		t.Fatalf("prometheus did not start:\n%s", &s.log)
	}
	return s
}

func start(t testing.TB, dir string) (s *Server, stop func()) {
	t.Helper()
	address := tcptest.FreeAddress(t)
	s = &Server{URL: "http://" + address, gone: make(chan struct{})}
	cmd := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yaml"), "--web.listen-address", address,
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--log.level", "warn")
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(s.gone) }()
	return s, func() { _ = cmd.Process.Kill(); <-s.gone }
}

// patience is the maximum time for a server to start.
const patience = 30 * time.Second

// await waits until the server is ready, and reports whether it is.
func (s *Server) await() bool {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	late := time.After(patience)
	for {
		if resp, err := http.Get(s.URL + "/-/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
		select {
		case <-s.gone:
			return false
		case <-late:
			return false
		case <-again.C:
		}
	}
}

// Sample is one series of a query result.
type Sample struct {
	Value Value `json:"value"`
}

// Value is a timestamp and a value, which is a number in text form, such as "NaN".
type Value [2]any

// Text returns the value.
func (v Value) Text() string { return fmt.Sprint(v[1]) }

// Query evaluates an expression at the current time.
func (s *Server) Query(expr string) ([]Sample, error) {
	var data struct {
		Type   string          `json:"resultType"`
		Result json.RawMessage `json:"result"`
	}
	if err := s.get("/api/v1/query?query="+url.QueryEscape(expr), &data); err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	if data.Type == "scalar" {
		var v Value
		err := json.Unmarshal(data.Result, &v)
		return []Sample{{Value: v}}, err
	}
	var all []Sample
	err := json.Unmarshal(data.Result, &all)
	return all, err
}

// Alert is an alert that is pending or firing.
type Alert struct {
	Labels map[string]string `json:"labels"`
	State  string            `json:"state"`
}

// Alerts returns the pending and firing alerts.
func (s *Server) Alerts() ([]Alert, error) {
	var data struct {
		Alerts []Alert `json:"alerts"`
	}
	err := s.get("/api/v1/alerts", &data)
	return data.Alerts, err
}

// get sends a request to the server's API.
func (s *Server) get(path string, data any) error {
	resp, err := http.Get(s.URL + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("prometheus returned %d: %s", resp.StatusCode, answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}

// Tool runs promtool and returns its output.
func Tool(t testing.TB, args ...string) (string, error) {
	t.Helper()
	Need(t)
	out, err := exec.Command("promtool", args...).CombinedOutput()
	return string(out), err
}
