package forwardauth_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/memstore"
)

// Every byte sequence that HTTP allows in a header is its own key: no value is an error, and no two values share a bucket.
func TestStrangeHeaders(t *testing.T) {
	s := httptest.NewServer(newHandler(t, memstore.New(), "rules:\n- {name: users, per: [header:X-User], limit: 1/day}\n"))
	t.Cleanup(s.Close)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	answers := bufio.NewReader(conn)
	ask := func(value string) int {
		t.Helper()
		if _, err := io.WriteString(conn, "GET /v1/auth HTTP/1.1\r\nHost: x\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\n"+
			"X-Forwarded-Host: h\r\nX-User: "+value+"\r\nX-Unread: "+value+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	for _, value := range rlstest.StrangeValues {
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) || value == " " {
			continue // invalid in HTTP headers, and " " is equal to ""
		}
		if first, again := ask(value), ask(value); first != http.StatusNoContent || again != http.StatusTooManyRequests {
			t.Errorf("%.20q: %d, then %d", value, first, again)
		}
	}
}
