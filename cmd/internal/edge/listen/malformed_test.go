package listen_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/internal/bounds"
)

// Requests that net/http itself rejects get a problem with an ID, as from handlers, and malformed is called once for each. The
// output of a handler is never mistaken for such a response.
func TestMalformed(t *testing.T) {
	const bare = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
	var statuses []int
	malformed := func(peer net.Addr, status int) string {
		statuses = append(statuses, status) // no lock: the response is written afterwards
		if !strings.HasPrefix(peer.String(), "127.0.0.1:") {
			t.Errorf("from %v", peer)
		}
		return "the-id"
	}
	r := start(t, listen.Config{
		HTTP: listen.HTTP{Endpoint: listen.Endpoint{Address: "127.0.0.1:0"}, Malformed: malformed},
		Gateway: listen.Gateway{Endpoint: listen.Endpoint{Address: "127.0.0.1:0"}, Malformed: malformed, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header()["Date"] = nil
			w.WriteHeader(http.StatusBadRequest)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, bare) // one write, in a response with a length
		})},
	})
	for text, want := range map[string]struct {
		status int
		detail string
	}{
		"GET / HTTP/1.1\r\n\r\n":                                                      {400, "The request is malformed: missing required Host header."},
		"GET / HTTP/1.1\r\nHost: a b\r\n\r\n":                                         {400, "The request is malformed: malformed Host header."},
		"GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n":                                {400, "The request is malformed."},
		"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n":                                        {400, "The request is malformed."},
		"G E T / HTTP/1.1\r\nHost: a\r\n\r\n":                                         {400, "The request is malformed."},
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n":                     {400, "The request is malformed."},
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n":               {501, "The Transfer-Encoding is not supported: use chunked."},
		"GET / HTTP/3.0\r\nHost: a\r\n\r\n":                                           {505, "The version of HTTP is not supported: use HTTP/1.1 or HTTP/2."},
		"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n": {431, "The request's path and headers are too large."},
	} {
		for name, address := range map[string]net.Addr{"http": r.HTTPAddr(), "gateway": r.GatewayAddr()} {
			statuses = nil
			was := bounds.Headers.Count()
			c := from(t, "127.0.0.1", address.String())
			go func() { _, _ = io.WriteString(c, text) }()
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Errorf("%s %.40q: %v", name, text, err)
				continue
			}
			var got struct {
				Title, Detail string
				Status        int
				ID            string `json:"request_id"`
			}
			b, err := io.ReadAll(resp.Body)
			if err == nil {
				err = json.Unmarshal(b, &got)
			}
			h := resp.Header
			if err != nil || got.Status != want.status || resp.StatusCode != want.status || got.Detail != want.detail || got.ID != "the-id" || !resp.Close ||
				got.Title != http.StatusText(want.status) || h.Get("Content-Type") != "application/problem+json" || h.Get("X-Request-Id") != "the-id" || h.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %.40q: %d %v %s %v, want %+v", name, text, resp.StatusCode, h, b, err, want)
			}
			if len(statuses) != 1 || statuses[0] != want.status {
				t.Errorf("%s %.40q: reported %v", name, text, statuses)
			}
			if n := bounds.Headers.Count() - was; (n == 1) != (want.status == 431) || n > 1 {
				t.Errorf("%s %.40q: the bound was reached %d times", name, text, n)
			}
			c.Close()
		}
	}
	statuses = nil
	c := from(t, "127.0.0.1", r.GatewayAddr().String())
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	b, err := io.ReadAll(c)
	if err != nil || strings.Count(string(b), bare) != 1 || len(statuses) != 0 {
		t.Errorf("of a handler: %q, %v, reported %v", b, err, statuses)
	}
}
