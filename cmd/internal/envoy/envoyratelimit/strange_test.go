package envoyratelimit

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// Values may contain any bytes, in both key formats: no value fails the call, and no two values share a bucket. Statistics,
// metadata and the log remain text.
func TestStrangeValues(t *testing.T) {
	memcached := []string{"BACKEND_TYPE=memcache", "MEMCACHE_HOST_PORT=" + memcachetest.Start(t).Addr, "SLUICE_STORE_TIMEOUT=30s", "SLUICE_ON_FAILURE=error"}
	redis := []string{"REDIS_URL=" + redistest.Shared(t).Addr, "SLUICE_STORE_TIMEOUT=30s"}
	for _, store := range [][]string{memcached, redis} {
		for _, format := range []string{"sluice", "envoy"} {
			_, environ := ruleDir(t, "  - {key: a, limit: 2, value_to_metric: true}\n  - {key: b, limit: 1}\n")
			environ = append(append(environ, store...), ownPrefix(), "SLUICE_KEY_FORMAT="+format, "RESPONSE_DYNAMIC_METADATA=true",
				"LOG_LEVEL=debug", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:0")
			p := launch(t, environ...)
			ask := func(key, value, want string) {
				t.Helper()
				got, _, _ := strings.Cut(rlstest.RawAnswer(t.Context(), p.dial(), "d", key, value), " %")
				if got != want {
					t.Errorf("%s %s: %.20q=%.20q: got %.200s, want %s", store[0], format, key, value, got, want)
				}
			}
			for _, value := range rlstest.StrangeValues {
				ask("a", value, "OK: OK 2/YEAR left 1")
			}
			for _, value := range rlstest.StrangeValues {
				ask("a", value, "OK: OK 2/YEAR left 0")
				ask("a", value, "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0")
				ask("unread", value, "OK: OK")
				ask(value+"\xff", value, "OK: OK")
			}
			_, stats := p.get("debug", "/stats")
			_, metrics := p.get("Prometheus", "/metrics")
			for _, text := range []string{stats, metrics, p.logged()} {
				for line := range strings.Lines(text) {
					line = strings.TrimSuffix(line, "\n")
					if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
						t.Errorf("%s %s: not plain text: %.200q", store[0], format, line)
					}
				}
			}
			if !strings.Contains(stats, "ratelimit.service.rate_limit.d.a__.total_hits: ") {
				t.Errorf("the values are not in the statistics:\n%s", stats)
			}
		}
	}
}
