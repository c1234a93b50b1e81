package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/recommend"
)

// recorded is the folder with recorded traffic.
const recorded = "../internal/traffic/recommend/testdata/"

func recommendJSON(t *testing.T, args ...string) (r recommend.ReportJSON) {
	t.Helper()
	code, out, errs := sluiceRun(t, append([]string{"recommend", "-o", "json"}, args...)...)
	if code != term.ExitFine {
		t.Fatalf("%v: exit %d: %s", args, code, errs)
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// The smallest bursts of a published analysis: sluice simulate denies nothing at them, and something at one less.
func TestRecommendAndSimulate(t *testing.T) {
	const trace = "../internal/traffic/logs/testdata/llm-requests.csv"
	r := recommendJSON(t, "--key", "all", "--rate", "5.6/s", "--rate", "7/s", "--rate", "8/s", "--rate", "10/s", trace)
	wanted := []struct {
		burst   int64
		backlog string
	}{{1591, "1590.14"}, {359, "358.81"}, {50, "49.70"}, {15, "14.38"}}
	if len(r.Frontier) != len(wanted) {
		t.Fatalf("%d points", len(r.Frontier))
	}
	dir := t.TempDir()
	for i, p := range r.Frontier {
		if got := fmt.Sprintf("%.2f", p.WholeBacklog); p.WholeBurst != wanted[i].burst || got != wanted[i].backlog {
			t.Errorf("%s: burst %d, backlog %s; want %v", p.Rate, p.WholeBurst, got, wanted[i])
		}
		for less := range int64(2) {
			file := filepath.Join(dir, "rule.yaml")
			write(t, file, fmt.Sprintf("rules:\n  - {name: all, limit: {rate: %s, burst: %d}}\n", p.Rate, p.WholeBurst-less))
			code, out, errs := sluiceRun(t, "simulate", "--rules", file, "-o", "json", trace)
			var s struct{ Requests, Denied int64 }
			if err := json.Unmarshal([]byte(out), &s); code != term.ExitFine || err != nil {
				t.Fatalf("exit %d, %v: %s", code, err, errs)
			}
			if s.Requests != 19_366 || (s.Denied > 0) != (less > 0) {
				t.Errorf("%s burst %d: %d of %d denied", p.Rate, p.WholeBurst-less, s.Denied, s.Requests)
			}
		}
	}
}

// The added rule is accepted by check, test and fmt. Costs, queues and concurrency limits have rules too.
func TestRecommendedRulesAreAccepted(t *testing.T) {
	const shop, trace = recorded + "shop-access.log", "../internal/traffic/logs/testdata/llm-requests.csv"
	durations := filepath.Join(t.TempDir(), "durations.csv")
	var rows strings.Builder
	rows.WriteString("time,ip,duration_seconds\n")
	for i := range 500 {
		fmt.Fprintf(&rows, "2026-01-02T15:%02d:%02d.%03dZ,192.0.2.%d,1.5\n", i/60%60, i%60, i*7%1000, i%40)
	}
	write(t, durations, rows.String())
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"per-ip", []string{shop}, "limit: {rate: 2/s, burst: 25}"},
		{"capacity", []string{"--capacity", "100/s", shop}, "name: capacity-total"},
		{"network", []string{"--key", "ip/24+header:User-Agent", shop}, "per: [ip, header:User-Agent]"},
		{"queue", []string{"--for", "queue", "--rate", "5/s", shop}, "algorithm: leaky_queue"},
		{"tokens", []string{"--key", "all", "--cost", "field:ContextTokens+GeneratedTokens", trace}, "cost: {attr: cost}"},
		{"flight", []string{"--for", "concurrency", durations}, "limit: {concurrent: "},
		{"forwarded", []string{"--trusted-proxies", "10.0.0.0/8", shop}, "trusted_proxies: [10.0.0.0/8]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			args := append([]string{"recommend", "--name", c.name, "--write", dir}, c.args...)
			if code, out, errs := sluiceRun(t, args...); code != term.ExitFine || !strings.Contains(out, "written, in shadow mode") {
				t.Fatalf("exit %d\n%s%s", code, out, errs)
			}
			text, err := os.ReadFile(filepath.Join(dir, c.name+".yaml"))
			if err != nil || !strings.Contains(string(text), c.want) || !strings.Contains(string(text), "shadow: true") {
				t.Errorf("%v\n%s", err, text)
			}
			for _, command := range [][]string{{"check", "--warnings=show", dir}, {"test", dir}, {"fmt", "--check", dir}} {
				if code, out, errs := sluiceRun(t, command...); code != term.ExitFine {
					t.Errorf("%v: exit %d\n%s%s", command, code, out, errs)
				}
			}
			if code, _, errs := sluiceRun(t, args...); code != term.ExitWrong {
				t.Errorf("the second time: exit %d: %s", code, errs)
			}
		})
	}
}

// No report contains a whole key, unless asked.
func TestRecommendMasksKeys(t *testing.T) {
	address := regexp.MustCompile(`\b198\.1[89]\.\d+\.\d+\b`)
	log := filepath.Join(t.TempDir(), "flooded.log")
	shop, err := os.ReadFile(recorded + "shop-access.log")
	if err != nil {
		t.Fatal(err)
	}
	flood := strings.Repeat(`198.19.7.7 - - [22/Jan/2019:03:57:40 +0330] "GET / HTTP/1.1" 200 5 "-" "a"`+"\n", 500)
	write(t, log, string(shop)+flood+"198.19.7.7 is no log line\n")
	for _, format := range []string{"text", "json"} {
		if _, out, _ := sluiceRun(t, "recommend", "-o", format, log); address.MatchString(out) || !strings.Contains(out, "198.19.") {
			t.Errorf("%s: %s", format, out)
		}
		if _, out, _ := sluiceRun(t, "recommend", "--show-keys", "-o", format, log); !strings.Contains(out, "198.19.7.7") {
			t.Errorf("%s with --show-keys: %s", format, out)
		}
	}
}

func TestRecommendWrongUse(t *testing.T) {
	const shop = recorded + "shop-access.log"
	for want, args := range map[string][]string{
		"a log file is required":      nil,
		"--untouched":                 {"--untouched", "99.9", shop},
		"above 0%":                    {"--untouched", "0%", shop},
		"--for":                       {"--for", "fun", shop},
		"--rate":                      {"--rate", "5", shop},
		"--capacity":                  {"--capacity", "-1/s", shop},
		"--name":                      {"--name", "../x", shop},
		"--key":                       {"--key", "nothing", shop},
		"too short":                   {"--block", "1ms", shop},
		"no durations":                {"--for", "concurrency", shop},
		"leave out --cost and --rate": {"--for", "concurrency", "--rate", "5/s", shop},
		"there are no requests":       {"--key", "header:X-Nothing", shop},
		"no such directory":           {"--write", "/nonexistent/rules", shop},
	} {
		code, out, errs := sluiceRun(t, append([]string{"recommend"}, args...)...)
		if code != term.ExitWrong || !strings.Contains(errs, want) || out != "" {
			t.Errorf("%v: exit %d, want %q: %s", args, code, want, errs)
		}
	}
}
