package upstream_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// A response with a too large header is a 502, and counted once as a reached bound over HTTP/1. Over HTTP/2 it is not
// distinguished from other errors.
func TestHeaderTooLarge(t *testing.T) {
	at := origin(t, func(w http.ResponseWriter, r *http.Request) {
		n := 200
		if r.URL.Path == "/large" {
			n = 300
		}
		for i := range n {
			w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1000))
		}
	})
	for name, to := range ways {
		t.Run(name, func(t *testing.T) { // not in parallel, because the count is global
			gw, _ := gateway(t, to(at))
			was := bounds.UpstreamHeader.Count()
			if got := get(t, gw.URL); got.status != 200 || bounds.UpstreamHeader.Count() != was {
				t.Errorf("below the bound: %d, and it was reached %d times", got.status, bounds.UpstreamHeader.Count()-was)
			}
			want := was + 1
			if name == "h2c" {
				want = was
			}
			if got := do(t, client(t), request(t, "POST", gw.URL+"/large", "x")); got.status != 502 || bounds.UpstreamHeader.Count() != want {
				t.Errorf("above the bound: %d, and it was reached %d times", got.status, bounds.UpstreamHeader.Count()-was)
			}
		})
	}
}
