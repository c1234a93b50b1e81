package envoyratelimit

import (
	"net/http"
	"strings"
	"testing"
)

// The headers of a 429 of /json contain the exceeded limit and the time until a retry, as every other 429.
func TestJSONRetry(t *testing.T) {
	_, environ := ruleDir(t, "  - {key: a, limit: 5}\n  - {key: b, limit: 1}\n")
	p := launch(t, append(environ, "BACKEND_TYPE=memory")...)
	const body = `{"domain":"d","hitsAddend":2,"descriptors":[{"entries":[{"key":"a","value":"1"}]},{"entries":[{"key":"b","value":"1"}]}]}`
	resp, err := http.Post("http://"+p.addr("HTTP")+"/json", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	h := resp.Header
	if resp.StatusCode != http.StatusTooManyRequests || h.Get("X-Ratelimit-Limit") != "1" || h.Get("X-Ratelimit-Remaining") != "0" ||
		h.Get("Retry-After") == "" || h.Get("X-Ratelimit-Retry-After") != h.Get("Retry-After") {
		t.Errorf("%s: %v", resp.Status, h)
	}
}
