package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/prometheustest"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// metrics returns the metrics of the service in Prometheus' text format.
func (p *process) metrics(t *testing.T) string {
	t.Helper()
	resp, err := http.Get("http://" + p.http + metricsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d, %v: %s", resp.StatusCode, err, b)
	}
	return string(b)
}

// Requests and decisions are counted by rule and protocol.
func TestServeMetrics(t *testing.T) {
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nmetrics: {http_listener: true}\n", rulesDir(t, `
  - {key: k, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: quiet, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
`)))
	client := p.client(t)
	for range 3 {
		rlstest.Answer(t.Context(), client, "d", "k=v")
		rlstest.Answer(t.Context(), client, "d", "quiet=v")
	}
	rlstest.Answer(t.Context(), client, "", "k=v")
	got := p.metrics(t)
	for _, want := range []string{
		`sluice_decisions_total{result="allowed",rule="d/k",source="store"} 1`,
		`sluice_decisions_total{result="denied",rule="d/k",source="store"} 2`,
		`sluice_decisions_total{result="shadow_denied",rule="d/quiet",source="store"} 2`,
		`sluice_requests_total{code="OK",protocol="rls"} 4`,
		`sluice_requests_total{code="OVER_LIMIT",protocol="rls"} 2`,
		`sluice_requests_total{code="InvalidArgument",protocol="rls"} 1`,
		`sluice_decision_duration_seconds_count{protocol="rls"} 7`,
		`sluice_rule_limit{rule="d/k"} 1`, `sluice_store_keys 2`, `sluice_rules_last_reload_successful 1`, `go_goroutines `,
	} {
		if !strings.Contains(got, "\n"+want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

// Disabled metrics are not served, and nothing else changes.
func TestServeMetricsOff(t *testing.T) {
	p := startServe(t, "metrics: {enabled: false}\n")
	if got := p.get(t, metricsPath); got != http.StatusNotFound {
		t.Errorf("%s: status %d", metricsPath, got)
	}
	if got := rlstest.Answer(t.Context(), p.client(t), "demo", "remote_address=1"); got != "OK: OK 5/MINUTE left 4" {
		t.Errorf("got %s", got)
	}
}

const metricsPath = "/metrics"

const deploy = "../../deploy"

func readDeploy(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(deploy, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// watched is a Prometheus that scrapes services with the files in deploy, but with shorter intervals.
type watched struct {
	*prometheustest.Server
	t        *testing.T
	services []*process
	clients  []pb.RateLimitServiceClient
	turn     int
}

var (
	ranges   = regexp.MustCompile(`\[\w+\]`)
	offsets  = regexp.MustCompile(`offset \w+`)
	patience = regexp.MustCompile(`(?m)^        for: \w+$`)
)

// hasty replaces minutes by seconds in an expression or in alerts.
func hasty(text string) string {
	text = ranges.ReplaceAllString(text, "[5s]")
	text = offsets.ReplaceAllString(text, "offset 1s")
	return patience.ReplaceAllString(text, "        for: 0s")
}

func startWatched(t *testing.T, services ...*process) *watched {
	t.Helper()
	w := &watched{t: t, services: services}
	var targets []string
	for _, p := range services {
		targets = append(targets, fmt.Sprintf("%q", p.http))
		w.clients = append(w.clients, p.client(t))
	}
	config := readDeploy(t, "prometheus/prometheus.yaml")
	for from, to := range map[string]string{"15s": "500ms", `"127.0.0.1:6070"`: strings.Join(targets, ", ")} {
		if !strings.Contains(config, from) {
			t.Fatalf("prometheus.yaml has no %s", from)
		}
		config = strings.ReplaceAll(config, from, to)
	}
	w.Server = prometheustest.Start(t, config, map[string]string{"alerts.yaml": hasty(readDeploy(t, "prometheus/alerts.yaml"))})
	return w
}

// until sends requests with all kinds of decisions until the condition is met.
func (w *watched) until(what string, condition func() (missing []string)) {
	w.t.Helper()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	late := time.After(45 * time.Second)
	for {
		w.ask()
		missing := condition()
		if len(missing) == 0 {
			return
		}
		select {
		case <-late:
			w.t.Fatalf("timeout: %s: missing\n%s", what, strings.Join(missing, "\n"))
		case <-again.C:
		}
	}
}

func (w *watched) ask() {
	w.turn++
	for i, client := range w.clients {
		select {
		case <-w.services[i].ended:
			continue
		default:
		}
		for n := range 10 {
			for _, ask := range []string{"quiet=v", "closed=v", "free=v"} {
				rlstest.Answer(w.t.Context(), client, "d", ask)
			}
			for key := n; key < 40; key += 10 { // many keys are denied, so that the rule is too strict
				rlstest.Answer(w.t.Context(), client, "d", fmt.Sprint("spent=v", key))
			}
		}
		rlstest.Answer(w.t.Context(), client, "d", fmt.Sprintf("near=%d hits:9", w.turn))
	}
}

// firing returns the names of the firing alerts.
func (w *watched) firing() []string {
	w.t.Helper()
	all, err := w.Alerts()
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, a := range all {
		if a.State == "firing" && !slices.Contains(names, a.Labels["alertname"]) {
			names = append(names, a.Labels["alertname"])
		}
	}
	return names
}

// A real Prometheus scrapes two services, of which one loses its store and gets rule files with errors. Every query of the dashboard
// returns data, and the expected alerts fire.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	prometheustest.Need(t)
	const descriptors = `
  - {key: spent, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: quiet, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: closed, rate_limit: {unit: year, requests_per_unit: 1000000, on_failure: closed}}
  - {key: free, rate_limit: {unit: year, requests_per_unit: 1000000, on_failure: open}}
  - {key: near, rate_limit: {unit: year, requests_per_unit: 10}}
`
	redis := redistest.Start(t)
	directory := rulesDir(t, descriptors)
	memory := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nmetrics: {http_listener: true}\n", rulesDir(t, descriptors)))
	shared := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nmetrics: {http_listener: true}\nstore: {kind: redis, url: %q, timeout: 1s}\n",
		directory, redis.URL()))
	w := startWatched(t, memory, shared)
	exprs := dashboard(t)

	w.until("while all is well", func() (missing []string) {
		for _, expr := range exprs {
			if !strings.Contains(expr, "degraded_.*") { // there are no degraded decisions yet
				missing = append(missing, w.empty(expr)...)
			}
		}
		return missing
	})
	if got := w.firing(); slices.Contains(got, "SluiceStoreUnavailable") || slices.Contains(got, "SluiceRulesReloadFailed") || slices.Contains(got, "SluiceDown") {
		t.Errorf("alerts fire without a failure: %v", got)
	}

	redis.Kill()
	write(t, filepath.Join(directory, "d.yaml"), "domain: d\ndescriptors: [{key: k, rate_limit: {unit: never}}]\n")
	shared.signal(t, syscall.SIGHUP)
	w.until("without the store", func() (missing []string) {
		for _, expr := range exprs {
			missing = append(missing, w.empty(expr)...)
		}
		return missing
	})
	fires := []string{
		"SluiceStoreUnavailable", "SluiceDegraded", "SluiceFailingClosed", "SluiceRuleTooStrict", "SluiceNearLimit", "SluiceRulesReloadFailed",
	}
	w.until("alerts", func() (missing []string) { return without(fires, w.firing()) })

	memory.signal(t, syscall.SIGTERM)
	<-memory.ended
	w.until("an instance is down", func() []string { return without([]string{"SluiceDown"}, w.firing()) })
	w.sound(alerts(t))
}

// without returns the names in the first list that are not in the second.
func without(names, others []string) (missing []string) {
	for _, n := range names {
		if !slices.Contains(others, n) {
			missing = append(missing, n)
		}
	}
	return missing
}

// empty returns the expression if its query returns no data.
func (w *watched) empty(expr string) []string {
	w.t.Helper()
	samples, err := w.Query(hasty(expr))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range samples {
		if s.Value.Text() != "NaN" {
			return nil
		}
	}
	return []string{expr}
}

// sound fails the test if an expression is invalid.
func (w *watched) sound(exprs []string) {
	w.t.Helper()
	for _, expr := range exprs {
		if _, err := w.Query(expr); err != nil {
			w.t.Error(err)
		}
	}
}

// alerts returns the expressions of the alerts.
func alerts(t *testing.T) (exprs []string) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal([]byte(readDeploy(t, "prometheus/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			exprs = append(exprs, r.Expr)
		}
	}
	if len(exprs) < 10 {
		t.Fatalf("found only %d alerts", len(exprs))
	}
	return exprs
}

// labelValues matches the query of a dashboard variable.
var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// dashboard returns the expressions of the dashboard, with all values of its variables selected.
func dashboard(t *testing.T) (exprs []string) {
	t.Helper()
	var board struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
		Annotations struct {
			List []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Type, Definition string }
		}
	}
	if err := json.Unmarshal([]byte(readDeploy(t, "grafana/sluice.json")), &board); err != nil {
		t.Fatal(err)
	}
	add := func(expr string) {
		for _, name := range []string{"job", "instance", "rule"} {
			expr = strings.ReplaceAll(expr, "$"+name, ".*")
		}
		expr = strings.ReplaceAll(expr, "$__rate_interval", "1m")
		if strings.Contains(expr, "$") || expr == "" {
			t.Errorf("%q contains an unknown variable", expr)
		}
		exprs = append(exprs, expr)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			add(target.Expr)
		}
	}
	for _, v := range board.Templating.List {
		if v.Type == "query" {
			add(labelValues.ReplaceAllString(v.Definition, "count by ($2) ($1)"))
		}
	}
	for _, a := range board.Annotations.List {
		add("(" + a.Expr + ") or vector(0)") // because there may be no annotation
	}
	if len(exprs) < 30 {
		t.Fatalf("found only %d queries", len(exprs))
	}
	return exprs
}

// The dashboard shows every metric.
func TestDashboardIsComplete(t *testing.T) {
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nmetrics: {http_listener: true}\nstore: {kind: redis, url: 'redis://127.0.0.1:1'}\n",
		rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1}}\n")))
	board := readDeploy(t, "grafana/sluice.json")
	all := regexp.MustCompile(`(?m)^# TYPE (sluice_\w+) `).FindAllStringSubmatch(p.metrics(t), -1)
	if len(all) < 12 {
		t.Errorf("found only %d metrics", len(all))
	}
	for _, m := range all {
		if !strings.Contains(board, m[1]) {
			t.Errorf("%s is not on the dashboard", m[1])
		}
	}
	if got := p.metrics(t); !strings.Contains(got, `sluice_store_up{shard="0"} 0`) || strings.Contains(got, `shard="1"`) {
		t.Errorf("the metrics of an unavailable Redis are\n%s", regexp.MustCompile(`(?m)^sluice_store_up.*$`).FindAllString(got, -1))
	}
}
