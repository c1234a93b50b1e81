package upstream_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluiceproject/sluice/internal/certtest"
	"github.com/sluiceproject/sluice/internal/upstream"
)

// rawFrames hands every connection to a function that speaks HTTP/2 for the server, over TLS if there is an authority.
func rawFrames(t testing.TB, authority *certtest.Authority, serve func(conn net.Conn, f *http2.Framer)) (at string) {
	t.Helper()
	scheme := "h2c://"
	var cfg *tls.Config
	if authority != nil {
		pair := authority.Issue(t, "inner.example.com")
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		scheme, cfg = "https://", &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}}
	}
	at = rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10) // servers that do not read are noticed soon
		if cfg != nil {
			conn = tls.Server(conn, cfg)
			in = bufio.NewReader(conn)
		}
		if _, err := io.ReadFull(in, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(conn, in)
		f.AllowIllegalWrites = true
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		serve(conn, f)
	})
	return scheme + strings.TrimPrefix(at, "http://")
}

// readRequests calls a function for each request, until it returns false or the connection ends.
func readRequests(f *http2.Framer, each func(h *http2.MetaHeadersFrame) bool) {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = f.WritePing(true, frame.Data)
			}
		case *http2.MetaHeadersFrame:
			if !each(frame) {
				return
			}
		}
	}
}

// A violation is what a server of HTTP/2 does when a request comes. It reports whether the server goes on reading.
type violation struct {
	settings []http2.Setting
	respond  func(conn net.Conn, f *http2.Framer, id uint32) bool
}

// violations are by name. None of them is a response.
var violations = func() map[string]violation {
	const most = 1<<31 - 1
	wide := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: most}}
	// silent waits until the gateway ends the connection, without reading.
	silent := func(conn net.Conn) {
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			<-time.After(20 * time.Millisecond)
			if _, err := conn.Write([]byte{0, 0, 4, 3, 0, 0, 1, 0, 1, 0, 0, 0, 8}); err != nil { // RST_STREAM, of no stream
				return
			}
		}
	}
	// flood writes 10,000 frames, and reads nothing.
	flood := func(write func(f *http2.Framer, id uint32)) func(net.Conn, *http2.Framer, uint32) bool {
		return func(conn net.Conn, _ *http2.Framer, id uint32) bool {
			var b bytes.Buffer
			f := http2.NewFramer(&b, nil)
			f.AllowIllegalWrites = true
			for range 10_000 {
				write(f, id)
			}
			_, _ = b.WriteTo(conn)
			silent(conn)
			return false
		}
	}
	head := func(f *http2.Framer, id uint32, end bool, pairs ...string) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fields(pairs...), EndHeaders: true, EndStream: end})
	}
	on := func(do func(f *http2.Framer, id uint32)) violation {
		return violation{respond: func(_ net.Conn, f *http2.Framer, id uint32) bool { do(f, id); return true }}
	}
	return map[string]violation{
		"nothing":        on(func(*http2.Framer, uint32) {}),
		"stream window":  on(func(f *http2.Framer, id uint32) { _ = f.WriteWindowUpdate(id, most); _ = f.WriteWindowUpdate(id, most) }),
		"window of zero": on(func(f *http2.Framer, id uint32) { _ = f.WriteWindowUpdate(id, 0) }),
		"connection window": on(func(f *http2.Framer, _ uint32) {
			_ = f.WriteWindowUpdate(0, most)
			_ = f.WriteWindowUpdate(0, most)
		}),
		"initial window": on(func(f *http2.Framer, id uint32) {
			_ = f.WriteWindowUpdate(id, most-1<<16)
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: most})
			_ = f.WriteWindowUpdate(id, 1)
		}),
		"initial window over the maximum": on(func(f *http2.Framer, _ uint32) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})
		}),
		"window never opened": {
			settings: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}},
			respond:  func(net.Conn, *http2.Framer, uint32) bool { return true },
		},
		"no streams": {settings: []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 0}}},
		"no further streams": on(func(f *http2.Framer, _ uint32) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
		}),
		"settings": {respond: flood(func(f *http2.Framer, _ uint32) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		})},
		"pings":        {respond: flood(func(f *http2.Framer, _ uint32) { _ = f.WritePing(false, [8]byte{}) })},
		"acks":         {respond: flood(func(f *http2.Framer, _ uint32) { _ = f.WriteSettingsAck() })},
		"resets":       {respond: flood(func(f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id+2, http2.ErrCodeCancel) })},
		"reset of all": on(func(f *http2.Framer, _ uint32) { _ = f.WriteRSTStream(0, http2.ErrCodeCancel) }),
		"endless headers": {respond: func(conn net.Conn, f *http2.Framer, id uint32) bool {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fields(":status", "200")})
			return flood(func(f *http2.Framer, id uint32) { _ = f.WriteContinuation(id, false, fields("x", "y")) })(conn, f, id)
		}},
		"empty continuations": {respond: func(conn net.Conn, f *http2.Framer, id uint32) bool {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fields(":status", "200")})
			return flood(func(f *http2.Framer, id uint32) { _ = f.WriteContinuation(id, false, nil) })(conn, f, id)
		}},
		"early hints": {respond: flood(func(f *http2.Framer, id uint32) { head(f, id, false, ":status", "103", "link", "</a>") })},
		"empty data": {respond: func(conn net.Conn, f *http2.Framer, id uint32) bool {
			head(f, id, false, ":status", "200")
			return flood(func(f *http2.Framer, id uint32) { _ = f.WriteData(id, false, nil) })(conn, f, id)
		}},
		"padding": {respond: func(conn net.Conn, f *http2.Framer, id uint32) bool {
			head(f, id, false, ":status", "200")
			return flood(func(f *http2.Framer, id uint32) { _ = f.WriteDataPadded(id, false, nil, make([]byte, 100)) })(conn, f, id)
		}},
		"data of unknown streams": on(func(f *http2.Framer, id uint32) { _ = f.WriteData(id+100, true, []byte("x")) }),
		"data of closed streams":  {respond: flood(func(f *http2.Framer, _ uint32) { _ = f.WriteData(1, false, make([]byte, 100)) })},
		"data before headers":     on(func(f *http2.Framer, id uint32) { _ = f.WriteData(id, true, []byte("x")) }),
		"endless trailers": on(func(f *http2.Framer, id uint32) {
			head(f, id, false, ":status", "200")
			head(f, id, false, "x", "y")
		}),
		"push": on(func(f *http2.Framer, id uint32) {
			_ = f.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: 2, BlockFragment: fields(":method", "GET"), EndHeaders: true})
		}),
		"GOAWAY for none": on(func(f *http2.Framer, _ uint32) { _ = f.WriteGoAway(most, http2.ErrCodeNo, nil) }),
		"compression": on(func(f *http2.Framer, id uint32) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0xff}, EndHeaders: true})
		}),
		"not read": {settings: wide, respond: func(conn net.Conn, f *http2.Framer, _ uint32) bool {
			_ = f.WriteWindowUpdate(0, most-1<<16)
			silent(conn)
			return false
		}},
		"read byte by byte": {settings: wide, respond: func(conn net.Conn, f *http2.Framer, _ uint32) bool {
			_ = f.WriteWindowUpdate(0, most-1<<16)
			for range 200 { // which takes longer than the gateway waits
				if _, err := conn.Read(make([]byte, 1)); err != nil {
					break
				}
				<-time.After(20 * time.Millisecond)
			}
			return false
		}},
	}
}()

// Whatever a server of HTTP/2 does: each request ends within its timeouts, the other server of the group goes on serving, and
// nothing is left behind.
func TestHTTP2Violations(t *testing.T) {
	authority := certtest.New(t)
	ca := write(t, filepath.Join(t.TempDir(), "ca.pem"), authority.PEM)
	var all sync.WaitGroup
	for name, v := range violations {
		all.Go(func() { violate(t, name+" over h2c", v, nil, "") })
		switch name {
		case "nothing", "stream window", "connection window", "no further streams", "pings", "not read", "read byte by byte":
			all.Go(func() { violate(t, name+" over TLS", v, authority, ca) })
		}
	}
	all.Wait()
	var stacks bytes.Buffer
	awaitTrue(t, "goroutines are left", func() bool {
		stacks.Reset()
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		s := stacks.String()
		return !strings.Contains(s, "http2.(*clientStream)") && !strings.Contains(s, "http2.(*ClientConn)") && !strings.Contains(s, "upstream.(*h2Pool)")
	})
	if t.Failed() {
		t.Log(stacks.String())
	}
}

// violate sends eight requests through a gateway with two servers, one of which commits a violation.
func violate(t *testing.T, name string, v violation, authority *certtest.Authority, ca string) {
	t.Helper()
	env := &scope{TB: t}
	defer env.end()
	over := make(chan struct{})
	hostile := rawFrames(env, authority, func(conn net.Conn, f *http2.Framer) {
		left := make(chan struct{})
		defer close(left)
		go func() {
			select {
			case <-over: // a server that has not read may learn of the end of the connection much later
				_ = conn.SetDeadline(time.Unix(1, 0))
			case <-left:
			}
		}()
		_ = f.WriteSettings(v.settings...)
		readRequests(f, func(h *http2.MetaHeadersFrame) bool { return v.respond == nil || v.respond(conn, f, h.StreamID) })
	})
	env.Cleanup(func() { close(over) }) // after the gateway has ended
	well := origin(env, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "well")
	})
	gw, g := gateway(env, upstream.Config{
		Servers: []string{hostile, well}, Eject: upstream.Eject{Failures: -1}, Retries: -1,
		TLS:      upstream.TLS{CA: ca, ServerName: "inner.example.com"},
		Timeouts: upstream.Timeouts{Connect: 2 * time.Second, Header: 2 * time.Second, Idle: time.Second},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := client(env)
	var served atomic.Int64
	var all sync.WaitGroup
	for _, body := range []int{0, 0, 0, 0, 10, 10, 300 << 10, 300 << 10} {
		r := request(t, "GET", gw.URL, "").WithContext(ctx)
		if body > 0 {
			r = request(t, "POST", gw.URL, strings.Repeat("x", body)).WithContext(ctx)
		}
		all.Go(func() {
			res, err := c.Do(r)
			if err == nil {
				var b []byte
				b, err = io.ReadAll(res.Body)
				res.Body.Close()
				if err == nil && string(b) == "well" {
					served.Add(1)
				}
			}
			if errors.Is(err, context.DeadlineExceeded) { // others are responses that are broken off
				t.Errorf("%s: %s with %d bytes: %v", name, r.Method, body, err)
			}
		})
	}
	all.Wait()
	if n := served.Load(); n != 4 {
		t.Errorf("%s: the other server served %d of 4", name, n)
	}
	awaitTrue(t, name+": requests are in flight", func() bool { return g.Status()[0].InFlight == 0 && g.Status()[1].InFlight == 0 })
}

// scope is a part of a test, with an end of its own.
type scope struct {
	testing.TB
	ends []func()
}

func (s *scope) Cleanup(f func()) { s.ends = append(s.ends, f) }

func (s *scope) end() {
	for i := len(s.ends) - 1; i >= 0; i-- {
		s.ends[i]()
	}
}

// awaitTrue waits until something is true, and reports after a minute that it is not.
func awaitTrue(t *testing.T, not string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); !is(); {
		select {
		case <-tick.C:
		case <-end:
			t.Error(not)
			return
		}
	}
}

// A server that violates a stream's rules loses that stream: what else the connection carries goes on.
func TestHTTP2StreamErrors(t *testing.T) {
	authority := certtest.New(t)
	ca := write(t, filepath.Join(t.TempDir(), "ca.pem"), authority.PEM)
	head := func(f *http2.Framer, id uint32, pairs ...string) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fields(pairs...), EndHeaders: true})
	}
	for name, violate := range map[string]func(f *http2.Framer, id uint32){
		"window":       violations["stream window"].wrap(),
		"zero window":  violations["window of zero"].wrap(),
		"no status":    func(f *http2.Framer, id uint32) { head(f, id, "x", "y") },
		"upper case":   func(f *http2.Framer, id uint32) { head(f, id, ":status", "200", "X-Upper", "y") },
		"bad value":    func(f *http2.Framer, id uint32) { head(f, id, ":status", "200", "x", "a\r\nb") },
		"pseudo later": func(f *http2.Framer, id uint32) { head(f, id, "x", "y", ":status", "200") },
		"large header": func(f *http2.Framer, id uint32) {
			block := append(fields(":status", "200", "x-large", strings.Repeat("x", 3000)), bytes.Repeat([]byte{0xbe}, 100)...)
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
		},
		"data first": violations["data before headers"].wrap(),
	} {
		for scheme, a := range map[string]*certtest.Authority{"h2c": nil, "https": authority} {
			t.Run(name+"/"+scheme, func(t *testing.T) {
				t.Parallel()
				var conns atomic.Int64
				let, arrived := make(chan struct{}), make(chan struct{}, 1)
				at := rawFrames(t, a, func(_ net.Conn, f *http2.Framer) {
					conns.Add(1)
					_ = f.WriteSettings()
					first := uint32(0)
					readRequests(f, func(h *http2.MetaHeadersFrame) bool {
						switch h.PseudoValue("path") {
						case "/first":
							first = h.StreamID
							arrived <- struct{}{}
						case "/bad":
							violate(f, h.StreamID)
						default:
							if first != 0 {
								<-let
								respond(f, first, "ok", ":status", "200")
							}
							respond(f, h.StreamID, "ok", ":status", "200")
						}
						return true
					})
				})
				gw, g := gateway(t, upstream.Config{Servers: []string{at}, Retries: -1, TLS: upstream.TLS{CA: ca, ServerName: "inner.example.com"}})
				var all sync.WaitGroup
				ok := func(path string) {
					if got := get(t, gw.URL+path); got.status != 200 || got.body != "ok" {
						t.Errorf("%s: %+v", path, got)
					}
				}
				all.Go(func() { ok("/first") })
				<-arrived
				if got := get(t, gw.URL+"/bad"); got.status != 502 {
					t.Errorf("%+v", got)
				}
				close(let)
				all.Go(func() { ok("/") })
				all.Wait()
				if st := g.Status()[0]; st.Failures != 1 || st.InFlight != 0 || conns.Load() != 1 {
					t.Errorf("%d connections, %+v", conns.Load(), st)
				}
			})
		}
	}
}

func (v violation) wrap() func(f *http2.Framer, id uint32) {
	return func(f *http2.Framer, id uint32) { v.respond(nil, f, id) }
}

// A server that allows no stream has got nothing: another one is asked, also with requests that cannot be repeated, and soon.
func TestHTTP2NoStreams(t *testing.T) {
	for _, name := range []string{"no streams", "no further streams"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := violations[name]
			var got atomic.Int64
			full := rawFrames(t, nil, func(conn net.Conn, f *http2.Framer) {
				_ = f.WriteSettings(v.settings...)
				readRequests(f, func(h *http2.MetaHeadersFrame) bool {
					got.Add(1)
					if v.respond != nil {
						v.respond(conn, f, h.StreamID)
						respond(f, h.StreamID, "well", ":status", "200")
					}
					return true
				})
			})
			well := origin(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, "well")
			})
			gw, _ := gateway(t, upstream.Config{
				Servers: []string{full, well}, Eject: upstream.Eject{Failures: -1},
				Timeouts: upstream.Timeouts{Connect: time.Second, Header: time.Hour, Idle: time.Hour},
			})
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if got := do(t, client(t), request(t, "POST", gw.URL, "x")); got.status != 200 || got.body != "well" {
						t.Errorf("%+v", got)
					}
				})
			}
			all.Wait()
			if v.respond == nil && got.Load() != 0 {
				t.Errorf("%d requests were sent", got.Load())
			}
		})
	}
}
