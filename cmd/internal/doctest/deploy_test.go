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

// alert is an alert of deploy/prometheus/alerts.yaml.
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
		t.Fatalf("found only %d alerts", len(all))
	}
	return all
}

// The runbook has exactly one entry for each alert, and each entry has all sections.
func TestRunbook(t *testing.T) {
	_, runbook, found := strings.Cut(read(t, "docs/runbook.md"), "\n## Alerts\n")
	if !found {
		t.Fatal("docs/runbook.md has no section Alerts")
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
		for _, part := range []string{"Meaning.", "Impact.", "Diagnosis.", "Mitigation."} {
			if !strings.Contains(entry, "\n**"+part+"** ") {
				t.Errorf("the runbook entry of %s has no section %s", a.Alert, part)
			}
		}
		if want := "/docs/runbook.md#" + strings.ToLower(a.Alert); !strings.HasSuffix(a.Annotations["runbook_url"], want) {
			t.Errorf("%s: runbook_url is %s, want %s", a.Alert, a.Annotations["runbook_url"], want)
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" ||
			!slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s has no summary, description or severity", a.Alert)
		}
	}
	for name := range entries {
		t.Errorf("the runbook has an entry for %s, which is not an alert", name)
	}
}

// Prometheus accepts the files without changes.
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

// Each alert has a test file with a case in which it fires and one in which it does not.
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
			t.Errorf("%s: fires in a test: %v; does not fire in a test: %v", name, fires, silent)
		}
		args = append(args, filepath.Join(root, name))
	}
	if out, err := prometheustest.Tool(t, args...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// panel is a panel of the dashboard.
type panel struct {
	ID          int
	Type, Title string
	Description string
	Grid        struct{ X, Y, W, H int } `json:"gridPos"`
	Targets     []struct{ Expr, RefID string }
}

// Panels have unique titles and positions, and queries.
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
			t.Errorf("panel %q has no query", p.Title)
		}
		for _, q := range board.Panels[:i] {
			apart := q.Grid.X+q.Grid.W <= p.Grid.X || p.Grid.X+p.Grid.W <= q.Grid.X ||
				q.Grid.Y+q.Grid.H <= p.Grid.Y || p.Grid.Y+p.Grid.H <= q.Grid.Y
			if !apart || q.ID == p.ID || q.Title == p.Title {
				t.Errorf("panels %q and %q have the same position or title", q.Title, p.Title)
			}
		}
	}
}

// docs/metrics.md lists exactly the metrics of the service. A test of cmd/sluice checks that the service has all of them.
func TestMetricsAreDocumented(t *testing.T) {
	name := regexp.MustCompile(`sluice_[a-z_]+[a-z]`)
	shown, listed := map[string]bool{}, map[string]bool{}
	code := read(t, "cmd/internal/operate/metrics/collect.go") + read(t, "cmd/internal/operate/metrics/metrics.go") + read(t, "cmd/internal/operate/metrics/gateway.go") +
		read(t, "cmd/internal/operate/metrics/queue.go")
	for _, m := range name.FindAllString(code, -1) {
		shown[m] = true
	}
	for _, m := range regexp.MustCompile(`desc\("(\w+)"`).FindAllStringSubmatch(code, -1) {
		shown["sluice_"+m[1]] = true
	}
	_, text, _ := strings.Cut(read(t, "docs/metrics.md"), "\n## Metric reference\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for _, m := range name.FindAllString(text, -1) {
		if !shown[m] {
			t.Errorf("docs/metrics.md lists %s, which does not exist", m)
		}
		listed[m] = true
	}
	for m := range shown {
		if !listed[m] {
			t.Errorf("docs/metrics.md does not list %s", m)
		}
	}
}
