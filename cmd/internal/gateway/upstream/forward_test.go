package upstream_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
)

func TestForward(t *testing.T) {
	eachWay(t, func(t *testing.T, to func(string) upstream.Config) {
		at := origin(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("X-Seen", r.Method+" "+r.URL.RequestURI()+" "+r.Host+" "+r.Trailer.Get("X-Sum"))
			w.Header().Set("Trailer", "X-After")
			w.WriteHeader(201)
			_, _ = w.Write(body)
			w.Header().Set("X-After", "done")
			w.Header().Set(http.TrailerPrefix+"X-Late", "unannounced")
		})
		chosen := ""
		cfg := to(at)
		cfg.OnServerChosen = func(_ *http.Request, server string) { chosen = server }
		gw, _ := gateway(t, cfg)
		c := client(t)
		for _, size := range []int{0, 1, 100, 16 << 10, 16<<10 + 1, 1 << 20} {
			for _, known := range []bool{true, false} {
				body := strings.Repeat("x", size)
				r, _ := http.NewRequest("POST", gw.URL+"/a%2Fb/?q=1", strings.NewReader(body))
				sum := ""
				if !known {
					sum = "crc"
					r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), -1
					r.Trailer = http.Header{"X-Sum": {sum}}
				}
				r.Host = "api.example.com"
				res, err := c.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(res.Body)
				if err != nil || res.StatusCode != 201 || string(got) != body || res.Trailer.Get("X-After") != "done" ||
					res.Trailer.Get("X-Late") != "unannounced" || res.Header.Get("X-Seen") != strings.TrimSpace("POST /a%2Fb/?q=1 api.example.com "+sum) {
					t.Errorf("%d bytes, length known %t: %d %v %d %v %v", size, known, res.StatusCode, err, len(got), res.Header, res.Trailer)
				}
				res.Body.Close()
			}
		}
		if chosen != cfg.Servers[0] {
			t.Errorf("chosen is %q", chosen)
		}
	})
}

// Responses without a body, and with a Content-Length but no body.
func TestForwardBodiless(t *testing.T) {
	eachWay(t, func(t *testing.T, to func(string) upstream.Config) {
		at := origin(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/204":
				w.WriteHeader(204)
			case "/304":
				w.Header().Set("Etag", `"x"`)
				w.WriteHeader(304)
			case "/302":
				http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
			default:
				w.Header().Set("Content-Length", "12345")
				w.WriteHeader(200)
			}
		})
		gw, _ := gateway(t, to(at))
		c := client(t)
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		for range 2 { // the second reuses the connections of the first
			for _, want := range []struct {
				method, path string
				status       int
				length       string
			}{{"HEAD", "/", 200, "12345"}, {"GET", "/204", 204, ""}, {"GET", "/304", 304, ""}, {"HEAD", "/302", 302, ""}} {
				got := do(t, c, request(t, want.method, gw.URL+want.path, ""))
				if got.status != want.status || got.body != "" || got.err != nil || (want.length != "" && got.header.Get("Content-Length") != want.length) {
					t.Errorf("%s %s: %+v", want.method, want.path, got)
				}
			}
		}
	})
}

// headOf reads the head of a request as it was sent.
func headOf(in *bufio.Reader) (lines []string, err error) {
	tp := textproto.NewReader(in)
	for {
		line, err := tp.ReadLine()
		if err != nil || line == "" {
			return lines, err
		}
		lines = append(lines, line)
	}
}

// Hop-by-hop fields are not forwarded in either direction, whatever Connection lists; forwarding headers are.
func TestHopByHop(t *testing.T) {
	for _, lane := range []bool{true, false} {
		t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
			heads := make(chan []string, 1)
			at := rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
				head, _ := headOf(in)
				heads <- head
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: X-Inner, keep-alive\r\nX-Inner: secret\r\nKeep-Alive: timeout=5\r\n"+
					"Proxy-Authenticate: Basic\r\nX-Outer: kept\r\nUpgrade: h2c\r\n\r\nok")
			})
			cfg := upstream.Config{Servers: []string{at}}
			if !lane {
				cfg = cfg.WithoutPool()
			}
			gw, _ := gateway(t, cfg)
			conn, err := net.Dial("tcp", gw.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "GET /p?q=1 HTTP/1.1\r\nHost: example.com\r\nConnection: X-Drop, X-Forwarded-For\r\nConnection: close, upgrade, HTTP2-Settings\r\n"+
				"X-Drop: 1\r\nX-Forwarded-For: 192.0.2.1\r\nTE: trailers, deflate\r\nKeep-Alive: 300\r\nProxy-Authorization: Basic eA==\r\nProxy-Connection: x\r\n"+
				"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nX-Two: a\r\nX-Two: b\r\n\r\n")
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"X-Inner", "Keep-Alive", "Proxy-Authenticate", "Upgrade"} {
				if v := res.Header.Get(name); v != "" {
					t.Errorf("the caller got %s: %s", name, v)
				}
			}
			if res.Header.Get("X-Outer") != "kept" || res.StatusCode != 200 {
				t.Errorf("%d %v", res.StatusCode, res.Header)
			}
			head := <-heads
			if head[0] != "GET /p?q=1 HTTP/1.1" || head[1] != "Host: example.com" {
				t.Errorf("the server got %q", head[:2])
			}
			rest := slices.Sorted(slices.Values(head[2:]))
			if want := []string{"Te: trailers", "X-Forwarded-For: 192.0.2.1", "X-Two: a", "X-Two: b"}; !slices.Equal(rest, want) {
				t.Errorf("the server got %q, want %q", rest, want)
			}
		})
	}
}

// Line breaks that were added to a request after it was parsed are rejected.
func TestInjection(t *testing.T) {
	eachWay(t, func(t *testing.T, to func(string) upstream.Config) {
		at := origin(t, func(http.ResponseWriter, *http.Request) { t.Error("a malformed request arrived") })
		g, err := upstream.New(to(at))
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		for name, spoil := range map[string]func(*http.Request){
			"value":  func(r *http.Request) { r.Header.Set("X-User", "a\r\nX-Admin: 1") },
			"name":   func(r *http.Request) { r.Header["X-User: a\r\nX"] = []string{"1"} },
			"method": func(r *http.Request) { r.Method = "GET / HTTP/1.1\r\nX: 1\r\n\r\nGET" },
			"query":  func(r *http.Request) { r.URL.RawQuery = "a HTTP/1.1\r\nX-Admin: 1\r\nX: " },
			"host":   func(r *http.Request) { r.Host = "a\r\nX-Admin: 1" },
		} {
			r := httptest.NewRequest("GET", "/", nil)
			spoil(r)
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			if w.Code != 400 {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
		}
	})
}

// Requests and responses are streamed without delay.
func TestStreaming(t *testing.T) {
	eachWay(t, func(t *testing.T, to func(string) upstream.Config) {
		at := origin(t, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex()
			if r.URL.Path == "/length" {
				w.Header().Set("Content-Length", "20")
			}
			w.WriteHeader(200)
			_ = rc.Flush()
			in := bufio.NewReader(r.Body)
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				_, _ = io.WriteString(w, "got "+line)
				_ = rc.Flush()
			}
		})
		gw, _ := gateway(t, to(at))
		for _, path := range []string{"/", "/length"} {
			body, out := io.Pipe()
			r, _ := http.NewRequestWithContext(t.Context(), "POST", gw.URL+path, body)
			res, err := client(t).Do(r) // returns before anything of the body was sent
			if err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(res.Body)
			for i := range 2 {
				_, _ = fmt.Fprintf(out, "line%d\n", i)
				if got, err := in.ReadString('\n'); err != nil || got != fmt.Sprintf("got line%d\n", i) {
					t.Errorf("%s: %q %v", path, got, err)
				}
			}
			out.Close()
			if rest, err := io.ReadAll(in); err != nil || len(rest) != 0 {
				t.Errorf("%s: %q %v", path, rest, err)
			}
			res.Body.Close()
		}
	})
}

// Events are streamed without delay over a connection pool too.
func TestEvents(t *testing.T) {
	eachWay(t, func(t *testing.T, to func(string) upstream.Config) {
		next := make(chan struct{})
		at := origin(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			rc := http.NewResponseController(w)
			_ = rc.Flush()
			for range next {
				_, _ = io.WriteString(w, "data: x\n\n")
				_ = rc.Flush()
			}
		})
		gw, _ := gateway(t, to(at))
		res, err := client(t).Get(gw.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b := make([]byte, 9)
		for range 3 {
			next <- struct{}{}
			if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != "data: x\n\n" {
				t.Errorf("%q %v", b, err)
			}
		}
		close(next)
		if n, err := res.Body.Read(b); n != 0 || err != io.EOF {
			t.Errorf("%d %v", n, err)
		}
	})
}

// Early hints are forwarded without the fields that the gateway has set for the final response, which keeps them.
func TestInformational(t *testing.T) {
	eachWay(t, func(t *testing.T, to func(string) upstream.Config) {
		at := origin(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(103)
			w.Header().Del("Link")
			w.Header().Set("X-Final", "1")
			_, _ = io.WriteString(w, "ok")
		})
		gw, _ := gatewayWith(t, to(at), func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Ratelimit", "ours")
				h.ServeHTTP(w, r)
			})
		})
		var hints []http.Header
		r := request(t, "GET", gw.URL, "")
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == 103 {
				hints = append(hints, http.Header(h))
			}
			return nil
		}}))
		got := do(t, client(t), r)
		if len(hints) != 1 || hints[0].Get("Link") == "" || hints[0].Get("Ratelimit") != "" {
			t.Errorf("hints %v", hints)
		}
		if got.status != 200 || got.body != "ok" || got.header.Get("Ratelimit") != "ours" || got.header.Get("Link") != "" || got.header.Get("X-Final") != "1" {
			t.Errorf("%+v", got)
		}
	})
}

// A caller that expects 100 Continue gets it, or the final response, from the server.
func TestExpectContinue(t *testing.T) {
	eachWay(t, func(t *testing.T, to func(string) upstream.Config) {
		at := origin(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/no" {
				w.WriteHeader(401)
				return
			}
			b, _ := io.ReadAll(r.Body)
			_, _ = w.Write(b)
		})
		gw, _ := gateway(t, to(at))
		for path, want := range map[string]string{"/yes": "HTTP/1.1 100 Continue", "/no": "HTTP/1.1 401 Unauthorized"} {
			conn, err := net.Dial("tcp", gw.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", path)
			in := bufio.NewReader(conn)
			head, err := headOf(in)
			if err != nil || head[0] != want {
				t.Errorf("%s: %q %v", path, head, err)
			}
			if path == "/yes" {
				_, _ = io.WriteString(conn, "hello")
				res, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				if b, _ := io.ReadAll(res.Body); string(b) != "hello" {
					t.Errorf("%q", b)
				}
			}
			conn.Close()
		}
	})
}

// The request to a server is cancelled when the caller disconnects, before and after the response has started.
func TestCallerLeaves(t *testing.T) {
	eachWay(t, func(t *testing.T, to func(string) upstream.Config) {
		came, left := make(chan struct{}), make(chan struct{})
		at := origin(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then does net/http detect that the caller has disconnected
			if r.URL.Path == "/begun" {
				_, _ = io.WriteString(w, "begun")
				_ = http.NewResponseController(w).Flush()
			}
			came <- struct{}{}
			<-r.Context().Done()
			left <- struct{}{}
		})
		var status int
		done := make(chan struct{}, 1)
		gw, g := gatewayWith(t, to(at), func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { done <- struct{}{} }()
				s := &statusWriter{ResponseWriter: w}
				defer func() { status = s.status }()
				h.ServeHTTP(s, r)
			})
		})
		for _, path := range []string{"/", "/begun"} {
			for _, body := range []string{"", "hello"} {
				ctx, cancel := context.WithCancel(t.Context())
				r := request(t, "POST", gw.URL+path, body).WithContext(ctx)
				go func() {
					res, err := client(t).Do(r)
					if err == nil {
						_, _ = io.ReadAll(res.Body)
						res.Body.Close()
					}
				}()
				<-came
				cancel()
				<-left
				<-done
				if path == "/" && status != 499 {
					t.Errorf("%s %q: counted as %d", path, body, status)
				}
			}
		}
		if s := g.Status()[0]; s.Failures != 0 || s.InFlight != 0 || s.Requests != 4 {
			t.Errorf("%+v", s)
		}
	})
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A truncated response never looks complete.
func TestBrokenResponse(t *testing.T) {
	eachWay(t, func(t *testing.T, to func(string) upstream.Config) {
		at := origin(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/length" {
				w.Header().Set("Content-Length", "100")
			}
			_, _ = io.WriteString(w, "half of it")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		gw, g := gateway(t, to(at))
		for _, path := range []string{"/length", "/chunked"} {
			if got := get(t, gw.URL+path); got.err == nil {
				t.Errorf("%s: it looks complete: %+v", path, got)
			}
		}
		if s := g.Status()[0]; s.Failures != 2 || s.InFlight != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Data after a response is not treated as the next response.
func TestSurplus(t *testing.T) {
	var mu sync.Mutex
	n := 0
	at := rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
		for {
			head, err := headOf(in)
			if err != nil {
				return
			}
			mu.Lock()
			n++
			mu.Unlock()
			path := strings.Fields(head[0])[1]
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%sHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", len(path), path)
		}
	})
	gw, g := gateway(t, upstream.Config{Servers: []string{at}})
	c := client(t)
	for i := range 20 {
		path := fmt.Sprintf("/%d", i)
		if got := do(t, c, request(t, "POST", gw.URL+path, "")); got.body != path || got.err != nil {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if kept := g.IdleConns(); kept != 0 {
		t.Errorf("%d idle connections", kept)
	}
}

// Responses that net/http's parser rejects, or whose header does not end, are rejected.
func TestBadResponses(t *testing.T) {
	for name, text := range map[string]string{
		"two lengths":   "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"no status":     "HTTP/1.1 abc\r\n\r\n",
		"not HTTP":      "SSH-2.0-OpenSSH\r\n",
		"endless head":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
		"endless hints": strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("x", 1000)+"\r\n\r\n", 1000),
		"101 unasked":   "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"negative":      "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"nothing":       "",
	} {
		for _, lane := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " lane ", lane), func(t *testing.T) {
				t.Parallel()
				at := rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
					_, _ = headOf(in)
					_, _ = io.WriteString(conn, text)
				})
				var log bytes.Buffer
				cfg := upstream.Config{Name: "inner", Servers: []string{at}, Log: slog.New(slog.NewTextHandler(&log, nil))}
				if !lane {
					cfg = cfg.WithoutPool()
				}
				gw, _ := gateway(t, cfg)
				got := get(t, gw.URL)
				if got.status != 502 || got.header.Get("Content-Type") != "application/problem+json" {
					t.Errorf("%+v", got)
				}
				host := strings.TrimPrefix(at, "http://")
				if strings.Contains(got.body, host) || strings.Contains(got.body, "inner") || !strings.Contains(log.String(), host) {
					t.Errorf("response %s, log %s", got.body, log.String())
				}
			})
		}
	}
}

// Connections are reused, each for one request at a time, and closed with the group.
func TestConnections(t *testing.T) {
	var mu sync.Mutex
	conns := map[string]int{}
	at := origin(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		conns[r.RemoteAddr]++
		mu.Unlock()
		_, _ = io.WriteString(w, r.URL.Path)
	})
	gw, g := gateway(t, upstream.Config{Servers: []string{at}})
	c := client(t)
	for range 50 {
		get := do(t, c, request(t, "GET", gw.URL+"/x", ""))
		if get.body != "/x" {
			t.Errorf("%+v", get)
		}
	}
	if len(conns) != 1 || g.IdleConns() != 1 {
		t.Errorf("50 consecutive requests used %d connections, and %d are idle", len(conns), g.IdleConns())
	}
	g.Close()
	if g.IdleConns() != 0 {
		t.Error("connections outlive the group")
	}
	if got := get(t, gw.URL+"/y"); got.body != "/y" || g.IdleConns() != 0 { // requests still succeed
		t.Errorf("%+v", got)
	}
}

// Concurrent callers, some of which disconnect: each gets its own response.
func TestCrowd(t *testing.T) {
	eachWay(t, func(t *testing.T, to func(string) upstream.Config) {
		at := origin(t, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, b)
			if r.URL.Query().Has("long") {
				_ = http.NewResponseController(w).Flush()
				_, _ = w.Write(bytes.Repeat([]byte("."), 100_000))
			}
		})
		gw, g := gateway(t, to(at))
		c := client(t)
		var all sync.WaitGroup
		for caller := range 16 {
			all.Go(func() {
				for i := range 40 {
					method, body, query := "GET", "", ""
					if i%3 == 1 {
						method, body = "POST", strings.Repeat("b", i*1000)
					}
					if i%5 == 4 {
						query = "?long"
					}
					path := fmt.Sprintf("/%d/%d", caller, i)
					ctx, cancel := context.WithCancel(t.Context())
					res, err := c.Do(request(t, method, gw.URL+path+query, body).WithContext(ctx))
					if err != nil {
						t.Error(err)
						cancel()
						return
					}
					if i%7 == 6 {
						cancel() // in the middle of a response
					}
					got, err := io.ReadAll(res.Body)
					want := method + " " + path + " " + body
					if (err == nil && strings.TrimRight(string(got), ".") != want) || (err != nil && !errors.Is(err, context.Canceled)) {
						t.Errorf("%s: %.100q %v", path, got, err)
					}
					res.Body.Close()
					cancel()
				}
			})
		}
		all.Wait()
		if s := g.Status()[0]; s.Failures != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestMerge(t *testing.T) {
	at := origin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Ratelimit", "theirs")
		w.Header().Set("Connection", "X-Gone")
		w.Header().Set("X-Gone", "1")
	})
	ours := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Ratelimit", "ours")
			h.ServeHTTP(w, r)
		})
	}
	gw, _ := gatewayWith(t, upstream.Config{Servers: []string{at}}, ours)
	if got := get(t, gw.URL).header["Ratelimit"]; !slices.Equal(got, []string{"ours", "theirs"}) {
		t.Errorf("%q", got)
	}
	gw, _ = gatewayWith(t, upstream.Config{Servers: []string{at}, Merge: func(answer, upstream http.Header) {
		if upstream.Get("X-Gone") != "" {
			t.Error("a hop-by-hop field was forwarded")
		}
		answer["Ratelimit"] = upstream["Ratelimit"]
	}}, ours)
	if got := get(t, gw.URL).header["Ratelimit"]; !slices.Equal(got, []string{"theirs"}) {
		t.Errorf("%q", got)
	}
}

// Trailers that are hop-by-hop, or would change how a message is parsed, are not forwarded, announced or not.
func TestTrailerNames(t *testing.T) {
	names := []string{"Connection", "Keep-Alive", "Te", "Trailer", "Upgrade", "Transfer-Encoding", "Content-Length", "Content-Encoding", "Host", "Set-Cookie2", "X-After"}
	for _, announced := range []bool{false, true} {
		http1 := rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
			for {
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				head, tail := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", "0\r\n"
				for _, name := range names {
					if announced && name != "Transfer-Encoding" && name != "Content-Length" && name != "Trailer" { // Go's client rejects these
						head += "Trailer: " + name + "\r\n"
					}
					tail += name + ": 7\r\n"
				}
				_, _ = io.WriteString(conn, head+"\r\n2\r\nok\r\n"+tail+"\r\n")
			}
		})
		h2 := rawFrames(t, nil, func(_ net.Conn, f *http2.Framer) {
			_ = f.WriteSettings()
			attacks.ReadRequests(f, func(h *http2.MetaHeadersFrame) bool {
				head, tail := []string{":status", "200"}, []string{}
				for _, name := range names {
					if announced {
						head = append(head, "trailer", name)
					}
					if name = strings.ToLower(name); name != "connection" && name != "keep-alive" && name != "upgrade" && name != "transfer-encoding" {
						tail = append(tail, name, "7")
					}
				}
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: attacks.HeaderBlock(head...), EndHeaders: true})
				_ = f.WriteData(h.StreamID, false, []byte("ok"))
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: attacks.HeaderBlock(tail...), EndHeaders: true, EndStream: true})
				return true
			})
		})
		for name, cfg := range map[string]upstream.Config{
			"lane": {Servers: []string{http1}}, "transport": upstream.Config{Servers: []string{http1}}.WithoutPool(), "h2c": {Servers: []string{h2}},
		} {
			gw, _ := gateway(t, cfg)
			conn, err := net.Dial("tcp", gw.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			all, _ := io.ReadAll(conn)
			conn.Close()
			_, tail, ok := strings.Cut(string(all), "\r\n2\r\nok\r\n0\r\n")
			if !ok || strings.Count(tail, ": 7\r\n") != 2 || !strings.Contains(tail, "X-After: 7\r\n") || !strings.Contains(tail, "Set-Cookie2: 7\r\n") {
				t.Errorf("%s, announced %t: %q", name, announced, all)
			}
		}
	}
}
