package upstream_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
)

const script = "<html><script>alert(1)</script>"

// rawResponses are responses of an HTTP/1 server and the fields that HTTP/1 callers receive: those of the server, except framing,
// which is hop-by-hop, and Date, which a gateway adds (RFC 9110).
var rawResponses = []struct {
	name, method, sent string
	fields             []string
}{
	{
		"no type", "GET", "HTTP/1.1 200 OK\r\nX-Content-Type-Options: nosniff\r\nContent-Length: 31\r\n\r\n" + script,
		[]string{"Content-Length: 31", "X-Content-Type-Options: nosniff"},
	},
	{
		"no type, in chunks", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1f\r\n" + script + "\r\n0\r\n\r\n",
		nil,
	},
	{
		"no type, ends with the connection", "GET", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + script,
		nil,
	},
	{
		"no type, an error", "POST", "HTTP/1.1 500 Oops\r\nContent-Length: 31\r\n\r\n" + script,
		[]string{"Content-Length: 31"},
	},
	{
		"empty type", "GET", "HTTP/1.1 200 OK\r\nContent-Type:\r\nContent-Length: 31\r\n\r\n" + script,
		[]string{"Content-Length: 31", "Content-Type: "},
	},
	{
		"type and date", "GET",
		"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: x\r\nContent-Type: a/b\r\nContent-Length: 31\r\n\r\n" + script,
		[]string{"Content-Length: 31", "Content-Type: a/b", "Date: Thu, 01 Jan 1970 00:00:00 GMT", "Server: x"},
	},
	{"no body", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", []string{"Content-Length: 0"}},
	{"HEAD with a length", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n", []string{"Content-Length: 31"}},
	{"HEAD without", "HEAD", "HTTP/1.1 200 OK\r\nX-A: b\r\n\r\n", []string{"X-A: b"}},
	{"HEAD in chunks", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", nil},
	{"304", "GET", "HTTP/1.1 304 Not Modified\r\nEtag: \"a\"\r\n\r\n", []string{`Etag: "a"`}},
	{"304 with a type", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Type: a/b\r\nContent-Length: 9\r\n\r\n", nil}, // Go's server drops them
	{
		"Pragma", "GET", "HTTP/1.1 200 OK\r\nPragma: no-cache\r\nContent-Length: 0\r\n\r\n", // Go's client adds the first
		[]string{"Cache-Control: no-cache", "Content-Length: 0", "Pragma: no-cache"},
	},
	{"204", "GET", "HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n", []string{"X-A: b"}},
	{
		"informational", "GET",
		"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n" + script,
		[]string{"103", "Link: </a>", "Content-Length: 31"},
	},
	{
		"upgrade refused", "UPGRADE", "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 31\r\n\r\n" + script,
		[]string{"Content-Length: 31"},
	},
	{
		"upgrade", "UPGRADE", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-A: b\r\n\r\n" + script,
		[]string{"Connection: Upgrade", "Upgrade: websocket", "X-A: b"},
	},
}

// A response has exactly the fields that its server sent, in particular no guessed Content-Type.
func TestResponseFields(t *testing.T) {
	for way, to := range map[string]func(string) upstream.Config{"lane": ways["lane"], "transport": ways["transport"]} {
		for _, c := range rawResponses {
			t.Run(way+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				at := rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
					if _, err := headOf(in); err == nil {
						_, _ = io.WriteString(conn, c.sent)
					}
				})
				gw, _ := gateway(t, to(at))
				fields, body := rawFields(t, gw.Listener.Addr().String(), c.method)
				fields = slices.DeleteFunc(fields, func(f string) bool {
					name, _, _ := strings.Cut(f, ": ")
					switch name {
					case "Date":
						return !strings.Contains(c.sent, "\r\nDate: ")
					case "Content-Length", "Transfer-Encoding": // both forms of framing are valid
						return c.method != "HEAD" && !strings.Contains(c.sent, "\r\nContent-Length: ") && strings.Contains(c.sent, script)
					}
					return false
				})
				if !slices.Equal(fields, c.fields) {
					t.Errorf("the server sent\n%s\nand the caller received\n%s", c.sent, strings.Join(fields, "\n"))
				}
				if want := strings.Contains(c.sent, script); strings.Contains(body, script) != want {
					t.Errorf("body %q", body)
				}
			})
		}
	}
}

// rawFields sends a request and returns the fields of all responses to it, sorted within each, and the rest of the connection.
func rawFields(t *testing.T, address, method string) (fields []string, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	head := method + " / HTTP/1.1\r\nHost: x\r\n"
	if method == "UPGRADE" {
		head = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
	}
	_, _ = io.WriteString(conn, head+"\r\n")
	in := textproto.NewReader(bufio.NewReader(conn))
	for {
		status, err := in.ReadLine()
		if err != nil {
			t.Fatal(err)
		}
		h, err := in.ReadMIMEHeader()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(h)) {
			for _, value := range h[name] {
				fields = append(fields, name+": "+value)
			}
		}
		if strings.Contains(status, " 103 ") {
			fields = append([]string{"103"}, fields...)
			continue
		}
		if strings.Contains(status, " 101 ") {
			b := make([]byte, len(script))
			_, _ = io.ReadFull(in.R, b)
			return fields, string(b)
		}
		if h.Get("Transfer-Encoding") == "chunked" {
			b, _ := io.ReadAll(httputil.NewChunkedReader(in.R))
			return fields, string(b)
		}
		if n := h.Get("Content-Length"); n != "" && method != "HEAD" {
			var length int
			_, _ = fmt.Sscan(n, &length)
			b := make([]byte, length)
			_, _ = io.ReadFull(in.R, b)
			return fields, string(b)
		}
		return fields, ""
	}
}

// HTTP/1 and HTTP/2 callers get no guessed Content-Type, for any protocol of the server, and however soon the body follows the
// head.
func TestContentTypeNotGuessed(t *testing.T) {
	eachWay(t, func(t *testing.T, to func(at string) upstream.Config) {
		at := origin(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil // not guessed by the server either
			if r.URL.Path == "/flush" {
				_ = http.NewResponseController(w).Flush()
			}
			_, _ = io.WriteString(w, script)
		})
		gw, _ := gateway(t, to(at))
		for name, c := range bothClients(t) {
			for _, path := range []string{"/", "/flush"} {
				for range 10 {
					a := do(t, c, request(t, "GET", gw.URL+path, ""))
					if types, ok := a.header["Content-Type"]; ok || a.body != script {
						t.Fatalf("%s %s: Content-Type %q, body %q", name, path, types, a.body)
					}
				}
			}
		}
	})
}

// A response of an HTTP/2 server has exactly the fields that the server sent, also for HTTP/2 callers.
func TestResponseFieldsHTTP2(t *testing.T) {
	at := rawH2Origin(t, func(f *http2.Framer, stream uint32) {
		block := attacks.HeaderBlock(":status", "200", "x-content-type-options", "nosniff")
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true})
		_ = f.WriteData(stream, true, []byte(script))
	})
	gw, _ := gateway(t, ways["h2c"](at))
	for name, c := range bothClients(t) {
		a := do(t, c, request(t, "GET", gw.URL, ""))
		a.header.Del("Date")
		a.header.Del("Content-Length")
		if want := (http.Header{"X-Content-Type-Options": {"nosniff"}}); !maps.EqualFunc(a.header, want, slices.Equal) || a.body != script {
			t.Errorf("%s: %v %q", name, a.header, a.body)
		}
	}
}
