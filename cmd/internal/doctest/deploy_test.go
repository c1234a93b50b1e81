package doctest

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/prometheustest"
)

// alert is one of deploy/prometheus/alerts.yaml.
type alert struct {
	Alert       string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []alert }
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/prometheus/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 10 {
		t.Fatalf("there are %d alerts", len(all))
	}
	return all
}

// The runbook has an entry for each alert and for nothing else, and each entry says all there is to say.
func TestRunbook(t *testing.T) {
	_, runbook, found := strings.Cut(read(t, "docs/operations.md"), "\n## Runbook\n")
	if !found {
		t.Fatal("docs/operations.md has no runbook")
	}
	runbook, _, _ = strings.Cut(runbook, "\n## ")
	entries := map[string]string{}
	for _, part := range strings.Split(runbook, "\n### ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		if entries[name] != "" {
			t.Errorf("%s has two entries", name)
		}
		entries[name] = text
	}
	for _, a := range alerts(t) {
		entry, ok := entries[a.Alert]
		if !ok {
			t.Errorf("%s has no entry in the runbook", a.Alert)
		}
		delete(entries, a.Alert)
		for _, part := range []string{"Means.", "Impact.", "Find the cause.", "Do."} {
			if !strings.Contains(entry, "\n**"+part+"** ") {
				t.Errorf("the entry of %s does not say: %s", a.Alert, part)
			}
		}
		if want := "/docs/operations.md#" + strings.ToLower(a.Alert); !strings.HasSuffix(a.Annotations["runbook_url"], want) {
			t.Errorf("%s sends people to %s, and not to %s", a.Alert, a.Annotations["runbook_url"], want)
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" ||
			!slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s does not say what it means, or how severe it is", a.Alert)
		}
	}
	for name := range entries {
		t.Errorf("the runbook is about %s, which is no alert", name)
	}
}

// Prometheus takes the files as they are.
func TestPrometheusFiles(t *testing.T) {
	for _, args := range [][]string{
		{"check", "config", filepath.Join(root, "deploy/prometheus/prometheus.yaml")},
		{"check", "rules", filepath.Join(root, "deploy/prometheus/alerts.yaml")},
	} {
		if out, err := prometheustest.Tool(t, args...); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// Each alert has a file of tests, in which it fires when it should and is silent otherwise.
func TestAlerts(t *testing.T) {
	args := []string{"test", "rules"}
	for _, a := range alerts(t) {
		name := "deploy/prometheus/tests/" + a.Alert + ".yaml"
		var file struct {
			Tests []struct {
				Checks []struct {
					Alert    string `yaml:"alertname"`
					Expected []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		if err := yaml.Unmarshal([]byte(read(t, name)), &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		fires, silent := false, false
		for _, test := range file.Tests {
			for _, c := range test.Checks {
				if c.Alert == a.Alert {
					fires = fires || len(c.Expected) > 0
					silent = silent || len(c.Expected) == 0
				}
			}
		}
		if !fires || !silent {
			t.Errorf("%s: it fires in a test: %v; it is silent in one: %v", name, fires, silent)
		}
		args = append(args, filepath.Join(root, name))
	}
	if out, err := prometheustest.Tool(t, args...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// panel is one of the dashboard.
type panel struct {
	ID          int
	Type, Title string
	Description string
	Grid        struct{ X, Y, W, H int } `json:"gridPos"`
	Targets     []struct{ Expr, RefID string }
}

// Panels have names and places of their own, and show something.
func TestDashboard(t *testing.T) {
	var board struct {
		UID, Title string
		Panels     []panel
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana/sluice.json")), &board); err != nil {
		t.Fatal(err)
	}
	if board.UID == "" || board.Title == "" || len(board.Panels) < 20 {
		t.Fatalf("%q, %q has %d panels", board.UID, board.Title, len(board.Panels))
	}
	for i, p := range board.Panels {
		if p.Title == "" || p.Grid.X+p.Grid.W > 24 || p.Grid.W == 0 || p.Grid.H == 0 {
			t.Errorf("panel %d, %q, is at %v", p.ID, p.Title, p.Grid)
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%q shows nothing", p.Title)
		}
		for _, q := range board.Panels[:i] {
			apart := q.Grid.X+q.Grid.W <= p.Grid.X || p.Grid.X+p.Grid.W <= q.Grid.X ||
				q.Grid.Y+q.Grid.H <= p.Grid.Y || p.Grid.Y+p.Grid.H <= q.Grid.Y
			if !apart || q.ID == p.ID || q.Title == p.Title {
				t.Errorf("%q and %q are in one place, or one", q.Title, p.Title)
			}
		}
	}
}

// What the documentation says of metrics are all there are; cmd/sluice looks whether all of them are there.
func TestMetricsAreDocumented(t *testing.T) {
	name := regexp.MustCompile(`sluice_[a-z_]+[a-z]`)
	shown := map[string]bool{}
	code := read(t, "cmd/internal/operate/metrics/collect.go") + read(t, "cmd/internal/operate/metrics/metrics.go") + read(t, "cmd/internal/operate/metrics/gateway.go") +
		read(t, "cmd/internal/operate/metrics/queue.go")
	for _, m := range name.FindAllString(code, -1) {
		shown[m] = true
	}
	for _, m := range regexp.MustCompile(`desc\("(\w+)"`).FindAllStringSubmatch(code, -1) {
		shown["sluice_"+m[1]] = true
	}
	_, text, _ := strings.Cut(read(t, "docs/operations.md"), "\n## Metrics\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for _, m := range name.FindAllString(text, -1) {
		if !shown[m] {
			t.Errorf("docs/operations.md tells of %s, which there is not", m)
		}
		delete(shown, m)
	}
	for m := range shown {
		t.Errorf("docs/operations.md does not tell of %s", m)
	}
}
