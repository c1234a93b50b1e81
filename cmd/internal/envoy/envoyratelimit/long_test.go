package envoyratelimit

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// Values of any length are limited, in both key formats, over gRPC and /json. The error of a message that is too large names
// its setting.
func TestLongValues(t *testing.T) {
	long := strings.Repeat("x", 9<<10)
	for _, format := range []string{"sluice", "envoy"} {
		_, environ := ruleDir(t, "  - {key: a, limit: 2}\n")
		environ = append(environ, onRedis(redistest.Shared(t))...)
		p := launch(t, append(environ, "SLUICE_KEY_FORMAT="+format, "SLUICE_MAX_MESSAGE_BYTES=100000", "SLUICE_MAX_DESCRIPTORS=2")...)
		post := func(value string) (int, string) {
			t.Helper()
			body := fmt.Sprintf(`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"%s"}]}]}`, value)
			return p.send("HTTP", http.MethodPost, "/json", body)
		}
		for _, tt := range []struct{ ask, want string }{
			{"a=" + long + "1", "OK: OK 2/YEAR left 1"},
			{"a=" + long + "1", "OK: OK 2/YEAR left 0"},
			{"a=" + long + "1", "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0"},
			{"a=" + long + "2", "OK: OK 2/YEAR left 1"},
			{"a=1 | unread=" + long, "OK: OK 2/YEAR left 1 | OK"},
			{"a=1 | unread=" + long, "OK: OK 2/YEAR left 0 | OK"},
			{"a=1 | unread=" + long, "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0 | OK"},
			{"a=1 | a=2 | a=3", "rpc error: code = InvalidArgument desc = rate limit request: more than 2 descriptors: send fewer, or raise SLUICE_MAX_DESCRIPTORS"},
			{"a=" + strings.Repeat(long, 12), "raise SLUICE_MAX_MESSAGE_BYTES"},
		} {
			if got := p.ask(tt.ask); got != tt.want && (!strings.HasPrefix(tt.want, "raise") || !strings.Contains(got, tt.want)) {
				t.Errorf("%s: %.20s…: got %.200s, want %s", format, tt.ask, got, tt.want)
			}
		}
		if status, body := post(long + "1"); status != http.StatusTooManyRequests {
			t.Errorf("%s: /json: %d %s", format, status, body)
		}
		if status, body := post(strings.Repeat(long, 12)); status != http.StatusBadRequest || !strings.Contains(body, "raise SLUICE_MAX_MESSAGE_BYTES") {
			t.Errorf("%s: /json: %d %s", format, status, body)
		}
	}
}
