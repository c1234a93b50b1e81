package listen

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/problem"
)

// net/http itself responds to malformed HTTP/1 requests; they do not reach a handler. These responses are recognised here by
// their bytes and replaced by responses like those of handlers. That is not possible on TLS connections, because net/http needs
// the *tls.Conn itself, nor over HTTP/2.

// bareHeader is the header of responses of net/http itself. All other responses have a Date or a length.
const bareHeader = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// watch replaces the responses of net/http itself by problems. It calls malformed for each, which returns the request ID or "".
func watch(s *http.Server, malformed func(peer net.Addr, status int) (id string)) {
	if malformed == nil {
		malformed = func(net.Addr, int) string { return "" }
	}
	s.ConnState = func(c net.Conn, state http.ConnState) {
		switch b, ok := c.(*boundedConn); {
		case !ok: // TLS
		case state == http.StateNew:
			b.malformed = malformed
			b.next.Store(true)
		case state == http.StateIdle:
			b.next.Store(true)
		}
	}
}

// bare returns the status and reason of a response of net/http itself, or 0 if b is another response.
func bare(b []byte) (status int, reason string) {
	line, _, ok := bytes.Cut(b, []byte(bareHeader))
	if !ok || len(line) < len("HTTP/1.1 400") || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) || bytes.ContainsAny(line, "\r\n") {
		return 0, ""
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil || status < 400 {
		return 0, ""
	}
	_, after, _ := bytes.Cut(line, []byte(": "))
	return status, string(after)
}

// rawProblem returns the bytes of a problem response.
func rawProblem(status int, detail, id string) []byte {
	p := problem.New(status, detail)
	p.RequestID = id
	body := p.AppendJSON(nil)
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: "+problem.MediaType+"\r\nCache-Control: no-store\r\n", status, http.StatusText(status))
	if id != "" {
		head += "X-Request-Id: " + id + "\r\n"
	}
	head += fmt.Sprintf("Content-Length: %d\r\nConnection: close\r\n\r\n", len(body)+1)
	return append(append([]byte(head), body...), '\n')
}

// details of responses for which net/http gives no reason.
var details = map[int]string{
	http.StatusBadRequest:                  "The request is malformed.",
	http.StatusRequestHeaderFieldsTooLarge: "The request's path and headers are too large.",
	http.StatusNotImplemented:              "The Transfer-Encoding is not supported: use chunked.",
	http.StatusHTTPVersionNotSupported:     "The version of HTTP is not supported: use HTTP/1.1 or HTTP/2.",
}

// Write replaces responses of net/http itself.
func (c *boundedConn) Write(b []byte) (int, error) {
	if !c.next.Load() {
		return c.Conn.Write(b)
	}
	c.next.Store(false)
	status, reason := bare(b)
	if status == 0 {
		return c.Conn.Write(b)
	}
	if status == http.StatusRequestHeaderFieldsTooLarge {
		bounds.Headers.Reached()
	}
	detail := details[status]
	if reason != "" && status == http.StatusBadRequest {
		detail = "The request is malformed: " + reason + "."
	}
	if _, err := c.Conn.Write(rawProblem(status, detail, c.malformed(c.RemoteAddr(), status))); err != nil {
		return 0, err
	}
	return len(b), nil
}
