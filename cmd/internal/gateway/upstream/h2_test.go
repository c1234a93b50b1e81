package upstream_test

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
)

// rawH2 is an HTTP/2 server that writes single frames, and counts connections and requests.
type rawH2 struct {
	at              string
	conns, requests atomic.Int64
	window          atomic.Int64 // of a stream, as announced by the gateway
}

// serveH2Fields starts a server that responds to each request by a function, which gets whether there is a field x-bad.
func serveH2Fields(t testing.TB, answer func(f *http2.Framer, stream uint32, bad bool)) string {
	return rawH2Of(t, nil, func(f *http2.Framer, h *http2.MetaHeadersFrame) {
		answer(f, h.StreamID, slices.ContainsFunc(h.Fields, func(f hpack.HeaderField) bool { return f.Name == "x-bad" }))
	}).at
}

// serveH2 starts a server that responds to each request with the frames of a function. hello is called after the server has sent
// its settings.
func serveH2(t testing.TB, hello func(*http2.Framer), answer func(f *http2.Framer, stream uint32), settings ...http2.Setting) *rawH2 {
	t.Helper()
	return rawH2Of(t, hello, func(f *http2.Framer, h *http2.MetaHeadersFrame) { answer(f, h.StreamID) }, settings...)
}

func rawH2Of(t testing.TB, hello func(*http2.Framer), answer func(*http2.Framer, *http2.MetaHeadersFrame), settings ...http2.Setting) *rawH2 {
	t.Helper()
	o := new(rawH2)
	at := rawOrigin(t, func(conn net.Conn, in *bufio.Reader) {
		o.conns.Add(1)
		if _, err := io.ReadFull(in, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(conn, in)
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		if f.WriteSettings(settings...) != nil {
			return
		}
		if hello != nil {
			hello(f)
		}
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if v, ok := frame.Value(http2.SettingInitialWindowSize); ok {
					o.window.Store(int64(v))
				}
				if !frame.IsAck() {
					_ = f.WriteSettingsAck()
				}
			case *http2.MetaHeadersFrame:
				o.requests.Add(1)
				answer(f, frame)
			}
		}
	})
	o.at = strings.Replace(at, "http://", "h2c://", 1)
	return o
}

// respond writes a response with a body.
func respond(f *http2.Framer, stream uint32, body string, pairs ...string) {
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: attacks.HeaderBlock(pairs...), EndHeaders: true})
	_ = f.WriteData(stream, true, []byte(body))
}

// A server that refuses streams gets each request as often as the retries allow, on as many connections, and the retries are
// counted. A request that is not repeatable is sent once.
func TestHTTP2Refused(t *testing.T) {
	goAway := func(code http2.ErrCode) func(f *http2.Framer, stream uint32) {
		return func(f *http2.Framer, _ uint32) { _ = f.WriteGoAway(0, code, nil) }
	}
	reset := func(code http2.ErrCode) func(f *http2.Framer, stream uint32) {
		return func(f *http2.Framer, stream uint32) { _ = f.WriteRSTStream(stream, code) }
	}
	for name, c := range map[string]struct {
		hello       func(*http2.Framer)
		answer      func(f *http2.Framer, stream uint32)
		unprocessed bool // so that even a POST may be sent again
		status      int
		never       bool // requests are never sent again
	}{
		"GOAWAY":                {answer: goAway(http2.ErrCodeNo), unprocessed: true, status: 502},
		"GOAWAY with an error":  {answer: goAway(http2.ErrCodeEnhanceYourCalm), unprocessed: true, status: 502},
		"REFUSED_STREAM":        {answer: reset(http2.ErrCodeRefusedStream), unprocessed: true, status: 502},
		"INTERNAL_ERROR":        {answer: reset(http2.ErrCodeInternal), status: 502},
		"PROTOCOL_ERROR":        {answer: reset(http2.ErrCodeProtocol), status: 400, never: true},
		"ENHANCE_YOUR_CALM":     {answer: reset(http2.ErrCodeEnhanceYourCalm), status: 400, never: true},
		"GOAWAY without asking": {hello: func(f *http2.Framer) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) }, answer: goAway(http2.ErrCodeNo), status: 502},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, method := range []string{"GET", "POST"} {
				for _, body := range []string{"", "small"} {
					if method == "GET" && body != "" {
						continue
					}
					for _, retries := range []int{-1, 1, 3} {
						o := serveH2(t, c.hello, c.answer)
						gw, g := gateway(t, upstream.Config{Servers: []string{o.at}, Retries: retries, OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: -1}})
						r := request(t, method, gw.URL, body)
						r.Header.Set("Idempotency-Key", "1") // with which Go's client retries a POST
						got := do(t, client(t), r)
						want := int64(1)
						if !c.never && retries > 0 && (c.unprocessed || method == "GET" && c.hello == nil) {
							want += int64(retries)
						}
						st := g.Status()[0]
						sent := o.requests.Load()
						if c.hello != nil && sent == 0 {
							sent = o.conns.Load() // connections end before they are used
						}
						if c.never && st.Failures != 0 {
							t.Errorf("%s: %d failures counted", method, st.Failures)
						}
						if got.status != c.status || sent != want || o.conns.Load() > want || st.Requests != want || st.Retries != want-1 {
							t.Errorf("%s %q, %d retries: %d; want %d requests: %d arrived on %d connections; %+v",
								method, body, retries, got.status, want, o.requests.Load(), o.conns.Load(), st)
						}
					}
				}
			}
		})
	}
}

// The retry budget applies to refused streams too.
func TestHTTP2RefusedBudget(t *testing.T) {
	const sent = 200
	o := serveH2(t, nil, func(f *http2.Framer, stream uint32) { _ = f.WriteRSTStream(stream, http2.ErrCodeRefusedStream) })
	gw, _ := gateway(t, upstream.Config{Servers: []string{o.at}, OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: -1}, Retries: 5})
	c := client(t)
	for range sent {
		if got := do(t, c, request(t, "GET", gw.URL, "")); got.status != 502 {
			t.Errorf("%+v", got)
		}
	}
	if n := o.requests.Load(); n < sent+10 || n > sent+sent/5+10 {
		t.Errorf("%d requests became %d", sent, n)
	}
	if n := o.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	if n := o.window.Load(); n != 256<<10 {
		t.Errorf("a stream's window is %d bytes", n)
	}
}

// A server that allows one stream per connection gets every request of a burst, and refuses none.
func TestHTTP2FewStreams(t *testing.T) {
	const burst = 50
	var all sync.WaitGroup
	arrived, let := make(chan struct{}, burst), make(chan struct{})
	o := serveH2(t, nil, func(f *http2.Framer, stream uint32) {
		arrived <- struct{}{}
		<-let
		respond(f, stream, "ok", ":status", "200")
	}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
	gw, g := gateway(t, upstream.Config{Servers: []string{o.at}})
	for range burst {
		all.Go(func() {
			if got := get(t, gw.URL); got.status != 200 || got.body != "ok" {
				t.Errorf("%+v", got)
			}
		})
	}
	for range burst {
		<-arrived
	}
	close(let)
	all.Wait()
	if st := g.Status()[0]; st.Failures != 0 || o.requests.Load() != burst || o.conns.Load() != burst {
		t.Errorf("%d requests on %d connections: %+v", o.requests.Load(), o.conns.Load(), st)
	}
}

// Responses with an ambiguous length are forwarded without their Content-Length, or not at all.
func TestHTTP2Length(t *testing.T) {
	for name, c := range map[string]struct {
		pairs  []string
		status int
	}{
		"right":       {[]string{":status", "200", "content-length", "2"}, 200},
		"none":        {[]string{":status", "200"}, 200},
		"two":         {[]string{":status", "200", "content-length", "2", "content-length", "2"}, 200},
		"different":   {[]string{":status", "200", "content-length", "2", "content-length", "50"}, 200},
		"a sign":      {[]string{":status", "200", "content-length", "+2"}, 200},
		"a list":      {[]string{":status", "200", "content-length", "2, 2"}, 200},
		"empty":       {[]string{":status", "200", "content-length", ""}, 200},
		"negative":    {[]string{":status", "200", "content-length", "-2"}, 200},
		"hexadecimal": {[]string{":status", "200", "content-length", "0x2"}, 200},
		"switching":   {[]string{":status", "101"}, 502},
	} {
		o := serveH2(t, nil, func(f *http2.Framer, stream uint32) { respond(f, stream, "ok", c.pairs...) })
		gw, _ := gateway(t, upstream.Config{Servers: []string{o.at}})
		got := get(t, gw.URL)
		if got.status != c.status || o.requests.Load() != 1 {
			t.Errorf("%s: %+v; it was sent %d times", name, got, o.requests.Load())
		}
		if length := got.header["Content-Length"]; c.status == 200 && (got.body != "ok" || got.err != nil || len(length) > 1 || len(length) == 1 && length[0] != "2") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
