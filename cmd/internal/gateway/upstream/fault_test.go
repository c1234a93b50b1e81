package upstream_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

// say sends text byte for byte, half-closes the connection if end is set, and returns the status of the response, or 0 if there
// is none.
func say(t testing.TB, at, text string, end bool) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(at, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, text)
	if end {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// narrow starts a server that accepts heads of up to 8 KiB and bodies of up to 64 KiB, and otherwise closes the connection
// without a response.
func narrow(t testing.TB) string {
	return rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
		for {
			head := 0
			in := bufio.NewReader(io.TeeReader(in, writerFunc(func(b []byte) { head += len(b) })))
			r, err := http.ReadRequest(in)
			if err != nil || head-in.Buffered() > 8<<10 || r.ContentLength > 64<<10 {
				_ = conn.(*net.TCPConn).SetLinger(0)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

// tellingOrigin starts an HTTP/2 server that announces a maximum header size of 8 KiB.
func tellingOrigin(t testing.TB) string {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "ok")
	}))
	s.Config.Protocols, s.Config.MaxHeaderBytes = bothProtocols(), 8<<10
	s.Start()
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "http://", "h2c://", 1)
}

// strictOrigin starts an HTTP/2 server that resets requests with a field x-bad, as strict servers do with malformed requests.
func strictOrigin(t testing.TB) string {
	return serveH2Fields(t, func(f *http2.Framer, stream uint32, bad bool) {
		if bad {
			_ = f.WriteRSTStream(stream, http2.ErrCodeProtocol)
			return
		}
		respond(f, stream, "ok", ":status", "200")
	})
}

// Requests that cannot be forwarded, or that a server rejects, are no failures of the server, however many there are: no server
// is ejected, the requests are not retried, and others are served as before.
func TestClientFaults(t *testing.T) {
	const rounds = 12
	large := strings.Repeat("x", 20<<10)
	type fault struct {
		text   string
		end    bool
		status int // 0: any 4xx, or no response
	}
	head := func(line, more string) string {
		return line + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + more + "\r\n"
	}
	malformed := map[string]fault{
		"trailer name":   {head("POST /", "Transfer-Encoding: chunked\r\nTrailer: a b\r\n") + "2\r\nok\r\n0\r\n\r\n", false, 400},
		"trailer twice":  {head("POST /", "Transfer-Encoding: chunked\r\nTrailer: (, )\r\n") + "2\r\nok\r\n0\r\n\r\n", false, 400},
		"chunk":          {head("POST /", "Transfer-Encoding: chunked\r\n") + "2\r\nok\r\nzz\r\n", false, 400},
		"body ends":      {head("POST /", "Content-Length: 10\r\n") + "ok", true, 400},
		"large ends":     {head("POST /", "Content-Length: 50000\r\n") + large, true, 400},
		"chunks end":     {head("POST /", "Transfer-Encoding: chunked\r\n") + "20\r\nok", true, 400},
		"method":         {head("G@T /", ""), false, 0},
		"expect":         {head("POST /", "Expect: 200-ok\r\nContent-Length: 2\r\n") + "ok", false, 417},
		"host":           {"GET / HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n", false, 400},
		"field":          {head("GET /", "X-Y: a\x01b\r\n"), false, 400},
		"query":          {head("GET /?a\x7fb", ""), false, 400},
		"upgrade to h2c": {head("GET /", "Connection: Upgrade\r\nUpgrade: h2c\r\n"), false, 200},
	}
	tooLarge := map[string]fault{
		"header":  {head("GET /", "X-Y: "+large+"\r\n"), false, 431},
		"cookies": {head("GET /", strings.Repeat("Cookie: a="+large[:1000]+"\r\n", 20)), false, 431},
		"path":    {head("GET /"+large, ""), false, 431},
		"POST":    {head("POST /", "Content-Length: 2\r\nX-Y: "+large+"\r\n") + "ok", false, 431},
	}
	upgrade := map[string]fault{"WebSocket": {head("GET /", "Connection: Upgrade\r\nUpgrade: websocket\r\n"), false, 400}}
	dir := t.TempDir()
	authority := certtest.New(t)
	onlyH2 := upstream.Config{TLS: upstream.TLS{CA: write(t, filepath.Join(dir, "ca.pem"), authority.PEM), ServerName: "inner.example.com"}}
	pair := func(at func(testing.TB) string) []string { return []string{at(t), at(t)} }
	for name, c := range map[string]struct {
		cfg    upstream.Config
		faults []map[string]fault
	}{
		"lane":      {upstream.Config{Servers: pair(narrow)}, []map[string]fault{malformed, tooLarge}},
		"transport": {upstream.Config{Servers: pair(narrow)}.WithoutPool(), []map[string]fault{malformed, tooLarge}},
		"h2c":       {upstream.Config{Servers: pair(tellingOrigin)}, []map[string]fault{malformed, tooLarge, upgrade}},
		"strict h2": {upstream.Config{Servers: pair(strictOrigin)}, []map[string]fault{{"field": {head("GET /", "X-Bad: 1\r\n"), false, 400}}, upgrade}},
		"only h2": {onlyH2.With(pair(func(t testing.TB) string { return onlyH2Origin(t, authority) })), []map[string]fault{
			upgrade,
		}},
		"large body": {upstream.Config{Servers: pair(narrow)}, []map[string]fault{
			{"body": {head("POST /", "Content-Length: 10000000\r\n") + strings.Repeat(large, 20), true, -1}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gw, g := gateway(t, c.cfg)
			honest := client(t)
			for _, faults := range c.faults {
				for kind, f := range faults {
					for range rounds {
						got := say(t, gw.URL, f.text, f.end)
						if ok := got == f.status || f.status == 0 && got < 500 || f.status < 0; !ok {
							t.Errorf("%s: %d, want %d", kind, got, f.status)
						}
					}
					if got := do(t, honest, request(t, "GET", gw.URL, "")); got.status != 200 || got.body != "ok" {
						t.Errorf("after %s: %+v", kind, got)
					}
				}
			}
			for _, st := range g.Status() {
				if st.Failures != 0 || st.Retries != 0 || st.Ejections != 0 || st.State != upstream.StateUp {
					t.Errorf("%+v", st)
				}
			}
		})
	}
}

// onlyH2Origin starts a server that supports only HTTP/2 over TLS.
func onlyH2Origin(t testing.TB, a *certtest.Authority) string {
	pair := a.Issue(t, "inner.example.com")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		for _, p := range hello.SupportedProtos {
			if p == "h2" {
				return nil, nil
			}
		}
		return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"other"}}, nil // no common protocol: the handshake fails
	}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}
