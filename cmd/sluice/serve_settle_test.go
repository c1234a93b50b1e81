package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// reserves reserves a cost and returns the reservation token.
func (p *process) reserves(t *testing.T, key string, cost int64) string {
	t.Helper()
	status, answer := p.ask(t, "/v1/reserve", fmt.Sprintf(`{"attributes":{"path":"/chat","headers":{"X-User":%q}},"cost":%d}`, key, cost))
	token, _ := answer["reservation"].(string)
	if status != 200 || token == "" {
		t.Fatalf("reserve responds %d %v", status, answer)
	}
	return token
}

func (p *process) settles(t *testing.T, token string, actual int64) map[string]any {
	t.Helper()
	status, answer := p.ask(t, "/v1/settle", fmt.Sprintf(`{"reservation":%q,"actual_cost":%d}`, token, actual))
	if status != 200 {
		t.Fatalf("settle responds %d %v", status, answer)
	}
	return answer
}

// leftOf returns the remaining quota of a key.
func (p *process) leftOf(t *testing.T, key string) int64 {
	t.Helper()
	_, answer := p.ask(t, "/v1/check", fmt.Sprintf(`{"attributes":{"path":"/chat","headers":{"X-User":%q}},"peek":true}`, key))
	limits, _ := answer["limits"].([]any)
	if len(limits) != 1 {
		t.Fatalf("%v", answer)
	}
	left, _ := limits[0].(map[string]any)["remaining"].(float64)
	return int64(left)
}

// Over HTTP, with the in-memory store and with Redis: an actual cost above the estimate is charged even if the bucket is full again,
// the unused parts of several reservations are refunded, and forgiven cost is in the response, the metrics and the log.
func TestServeSettles(t *testing.T) {
	rule := nativeRules(t, "  - {name: tokens, per: [\"header:X-User\"], limit: {rate: 2/s, burst: 20}}\n")
	for name, store := range map[string]string{
		"memory": "", "redis": fmt.Sprintf("store: {kind: redis, url: %q, timeout: 900ms}\n", redistest.Start(t).URL()),
	} {
		t.Run(name, func(t *testing.T) {
			p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nmetrics: {http_listener: true}\n%s", rule, store))
			began := time.Now()
			late := p.reserves(t, "late", 2)
			var sixes []string
			for range 3 {
				sixes = append(sixes, p.reserves(t, "many", 6))
			}
			for p.leftOf(t, "late") < 20 { // takes a second
				if time.Since(began) > 30*time.Second {
					t.Fatal("timeout: the bucket does not fill")
				}
			}
			settled := time.Now()
			p.settles(t, late, 20)
			if left := p.leftOf(t, "late"); left > 2+2*int64(time.Since(settled).Seconds()+1) {
				t.Errorf("%d left after 18 were charged to a full bucket", left)
			}
			for _, token := range sixes {
				if answer := p.settles(t, token, 1); answer["settled"] != true {
					t.Errorf("%v", answer)
				}
			}
			if left := p.leftOf(t, "many"); left < 18 { // 3 were used, and 2/s are replenished
				t.Errorf("%d left after 3 were used, %v ago", left, time.Since(began))
			}
			if answer := p.settles(t, sixes[0], 0); answer["settled"] != false || answer["forgiven"] != 0.0 {
				t.Errorf("again: %v", answer)
			}
			answer := p.settles(t, p.reserves(t, "cap", 1), 1_000_000)
			// 10 bursts and an hour, minus the 1 that was charged, plus the refill during the test
			if forgiven, _ := answer["forgiven"].(float64); answer["settled"] != true || forgiven > 992_600 || forgiven < 992_500 {
				t.Errorf("%v", answer)
			}
			line := p.await(t, "settlement not charged in full")
			if want := fmt.Sprintf("forgiven=%.0f", answer["forgiven"]); !strings.Contains(line, "rule=tokens") || !strings.Contains(line, want) {
				t.Errorf("the log line is %s, want %s", line, want)
			}
			if want := fmt.Sprintf("sluice_settle_forgiven_total{rule=\"tokens\"} %.0f", answer["forgiven"]); !strings.Contains(p.metrics(t), want) {
				t.Errorf("no %s in the metrics", want)
			}
		})
	}
}
