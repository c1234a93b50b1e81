package gateway_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
)

// A client that closes its side of the connection in the middle of its request can still read: it gets 400. A client that
// closes it after the request counts as disconnected: 499 is logged and never sent.
func TestHalfClosed(t *testing.T) {
	came, ended := make(chan struct{}, 1), make(chan int, 1)
	address := before(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/wait" {
			came <- struct{}{}
			<-r.Context().Done()
		}
	}), func(c *gateway.Config) { c.OnDone = func(x *gateway.RequestContext) { ended <- x.Status() } })
	for name, c := range map[string]struct {
		text   string
		logged int
	}{
		"small body": {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nok", 400},
		"large body": {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 100_000), 400},
		"chunks":     {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n20\r\nok", 400},
		"no body":    {"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n", 499},
		"whole body": {"POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok", 499},
	} {
		for range 10 {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, c.text)
			if c.logged == 499 {
				<-came
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			b, _ := io.ReadAll(conn)
			conn.Close()
			if got := <-ended; got != c.logged {
				t.Errorf("%s: logged as %d", name, got)
			}
			if text := string(b); c.logged == 499 && text != "" ||
				c.logged == 400 && (!strings.HasPrefix(text, "HTTP/1.1 400 Bad Request\r\n") || !strings.Contains(text, "application/problem+json") ||
					!strings.Contains(text, `"detail":"The request body ended before its `) || !strings.Contains(text, `"request_id":"`)) {
				t.Errorf("%s: %q", name, b)
			}
		}
	}
}
