package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// untilFull returns the time until the limit of a key is fully reset.
func (p *process) untilFull(t *testing.T, key string) time.Duration {
	t.Helper()
	_, answer := p.ask(t, "/v1/check", fmt.Sprintf(`{"attributes":{"path":"/chat","headers":{"X-User":%q}},"peek":true}`, key))
	limits, _ := answer["limits"].([]any)
	if len(limits) != 1 {
		t.Fatalf("%v", answer)
	}
	reset, _ := limits[0].(map[string]any)["reset_after_ms"].(float64)
	return time.Duration(reset) * time.Millisecond
}

// When the limit of a rule changes in its file, while the service runs or between two processes, a used-up limit stays used up, a
// half-used one stays half used, no client is denied for longer than the new limit takes to reset, and earlier reservations can be
// cancelled.
func TestServeChangedNumbers(t *testing.T) {
	const day = 24 * time.Hour
	for name, store := range map[string]string{
		"memory":    fmt.Sprintf("store: {snapshot_file: %q}\n", filepath.Join(t.TempDir(), "state")),
		"redis":     fmt.Sprintf("store: {kind: redis, url: '%s', timeout: 5s}\n", redistest.Start(t).URL()),
		"memcached": fmt.Sprintf("store: {kind: memcached, addresses: ['%s'], timeout: 5s}\n", memcachetest.Start(t).Addr),
	} {
		t.Run(name, func(t *testing.T) {
			rules := nativeRules(t, "")
			say := func(limit string) {
				text := fmt.Sprintf("rules:\n  - {name: tokens, per: [\"header:X-User\"], limit: %s}\n", limit)
				if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			say("10/day")
			cfg := fmt.Sprintf("rules: {paths: [%q]}\n%s", rules, store)
			p := startServe(t, cfg)
			p.reserves(t, "spent", 10)
			p.reserves(t, "half", 5)
			reserved := p.reserves(t, "cancelled", 4)
			for _, c := range []struct {
				limit   string
				restart bool
				fill    time.Duration
			}{
				{"10/365day", false, 365 * day}, {"10/7day", false, 7 * day}, {"10/365day", true, 365 * day}, {"10/3day", true, 3 * day},
			} {
				if say(c.limit); c.restart {
					p.end(t)
					p = startServe(t, cfg)
				} else if got := p.operate(t, "POST", "/v1/reload", ""); got.status != 200 {
					t.Fatalf("%d %s", got.status, got.body)
				}
				if left := p.leftOf(t, "spent"); left != 0 {
					t.Errorf("%s: %d left of a used-up limit", c.limit, left)
				}
				if left := p.leftOf(t, "half"); left != 5 && left != 4 { // minus rounding
					t.Errorf("%s: %d left of a half-used limit", c.limit, left)
				}
				if full := p.untilFull(t, "spent"); full > c.fill || full < c.fill-c.fill/100 {
					t.Errorf("%s: full after %v", c.limit, full)
				}
				if reserved != "" {
					p.settles(t, reserved, 0)
					reserved = ""
					if left := p.leftOf(t, "cancelled"); left != 10 {
						t.Errorf("%s: %d left after all reservations were cancelled", c.limit, left)
					}
				}
			}
		})
	}
}
