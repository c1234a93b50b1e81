package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// takeUntil sends requests until the log has a line with the text, and returns it.
func (p *process) takeUntil(t *testing.T, text string) string {
	t.Helper()
	for late := time.Now().Add(hangs); time.Now().Before(late); {
		sluiceRun(t, "take", "-n", "10", "/a")
		for _, line := range p.log() {
			if strings.Contains(line, text) {
				return line
			}
		}
	}
	t.Fatalf("no %s in the log", text)
	return ""
}

// The status shows the server with an open circuit breaker, since when and the error, and keeps the history after it has closed.
func TestStatusOfBreaker(t *testing.T) {
	redis := redistest.Start(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, rules, "rules: [{name: a, match: {path: /a}, limit: 5/h}]\n")
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nstore: {kind: redis, url: %q}", rules, redis.URL()))
	p.asked(t)
	ask{"status", term.ExitFine, "healthy: "}.run(t)
	redis.Kill()
	if line := p.takeUntil(t, "store breaker opened"); !strings.Contains(line, "shard=0 address="+redis.Addr+" error=") {
		t.Errorf("the log line is %s", line)
	}
	if err := redis.Restart(); err != nil { // the store is available, but its breaker is open until a probe succeeds
		t.Fatal(err)
	}
	code, out, _ := sluiceRun(t, "status")
	for _, want := range []string{"degraded: ", redis.Addr + " (shard 0): circuit breaker open since ", " opened, " + redis.Addr + " (shard 0): "} {
		if code != term.ExitFindings || !strings.Contains(out, want) {
			t.Errorf("exit %d, want %q in\n%s", code, want, out)
		}
	}
	p.takeUntil(t, "store breaker closed")
	ask{"status", term.ExitFine, " closed, " + redis.Addr + " (shard 0)\n"}.run(t)
	_, out, _ = sluiceRun(t, "status", "-o", "json")
	var s adminmsg.Status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	if h := s.Store.History; len(h) != 2 || h[0].Breaker != "closed" || h[1].Breaker != "open" || h[1].Server != redis.Addr || h[1].Error == "" {
		t.Errorf("the history is %+v", h)
	}
	ask{"suspend a", term.ExitFine, "suspended"}.run(t)
	ask{"status", term.ExitFindings, "degraded: "}.run(t)
}
