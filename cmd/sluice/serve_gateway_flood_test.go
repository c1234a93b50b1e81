package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluiceproject/sluice/internal/certtest"
)

// Whoever sends too much, too slowly or the wrong frames has no more than his limit, and others are served.
func TestGatewayFloods(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.counted(t)
	slow := slowCrowd(t, y)
	before := (&victim{process: y.process.process}).resident(t)
	for name, attack := range map[string]func(*testing.T, *yard){
		"resets": floodResets, "headers without an end": floodContinuation, "settings": floodSettings, "pings": floodPings,
		"header lists": floodHeaderLists, "odd frames": floodOddFrames, "bodies": floodBodies, "streams": floodStreams, "half a request": floodHalves,
	} {
		t.Run(name, func(t *testing.T) {
			b := y.beside(t)
			b.more(5) // they are there before it begins
			attack(t, y)
			b.more(5) // and when it is over
			b.served(t)
		})
	}
	const most = 400 // almost all of it the race detector's
	if after := (&victim{process: y.process.process}).resident(t); after > before+most {
		t.Errorf("the process had %d MiB and now has %d", before, after)
	}
	y.limited(t)
	b := y.beside(t)
	slow.reaped(t)
	b.more(10)
	b.served(t)
}

// limited wants no key to have had more than its limit of 20, whatever happened to the requests in between.
func (y *yard) limited(t *testing.T) {
	t.Helper()
	seen, odd := y.app.taken()
	keys := map[string]int{}
	for _, s := range seen {
		if !strings.HasPrefix(s, "GET /flood ") {
			continue
		}
		_, rest, _ := strings.Cut(s, "\r\nX-Api-Key: ")
		key, _, _ := strings.Cut(rest, "\r\n")
		keys[key]++
	}
	for key, n := range keys {
		if n > 20 {
			t.Errorf("key %q has had %d of 20", key, n)
		}
	}
	if len(odd) > 0 || len(keys) < 2 || keys["lists"] > 0 { // 30 MB of headers are not for anybody
		t.Errorf("the application saw keys %v and %q", keys, odd)
	}
	for _, key := range []string{"resets", "streams"} { // what was begun was counted
		if got := y.say(t, "GET /flood HTTP/1.1\r\nHost: a\r\nX-Api-Key: "+key+"\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 429 ") {
			t.Errorf("key %q has something left: %.100q", key, got)
		}
	}
}

// floodCall are the headers of a request of HTTP/2 under a key, with more.
func floodCall(key string, more ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	all := append([]string{":method", "GET", ":scheme", "http", ":path", "/flood", ":authority", "a", "x-api-key", key}, more...)
	for i := 0; i < len(all); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]}) // to a buffer
	}
	return b.Bytes()
}

// pour writes what was prepared, which the gateway may cut short, and waits until it has hung up.
func (f *frames) pour(b *bytes.Buffer) {
	_, _ = b.WriteTo(f.conn)
	_ = f.conn.(*net.TCPConn).CloseWrite()
	<-f.done
}

// floodResets begins requests and takes them back at once.
func floodResets(t *testing.T, y *yard) {
	for range 4 {
		f := speak(t, y.address)
		var many bytes.Buffer
		w := http2.NewFramer(&many, nil)
		block := floodCall("resets")
		for i := range times(10_000) {
			id := uint32(2*i + 1)
			if err := errors.Join(w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: i%2 == 0}),
				w.WriteRSTStream(id, http2.ErrCodeCancel)); err != nil {
				t.Fatal(err)
			}
		}
		f.pour(&many)
	}
}

// floodContinuation never ends its headers, until the gateway hangs up.
func floodContinuation(t *testing.T, y *yard) {
	f := speak(t, y.address)
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: floodCall("endless")})
	var b bytes.Buffer
	_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: "x-more", Value: strings.Repeat("y", 4000)})
	sent := 0
	for ; err == nil && sent < 100_000; sent++ {
		err = f.WriteContinuation(1, false, b.Bytes())
	}
	if err == nil {
		t.Errorf("%d frames of one header were taken", sent)
	}
	<-f.done
	f = speak(t, y.address) // without anything in them
	err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: floodCall("endless")})
	for sent = 0; err == nil && sent < times(100_000); sent++ {
		err = f.WriteContinuation(1, false, nil)
	}
	f.conn.Close()
	<-f.done
}

func floodSettings(t *testing.T, y *yard) {
	f := speak(t, y.address)
	var many bytes.Buffer
	w := http2.NewFramer(&many, nil)
	for range times(100_000) {
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
	}
	f.pour(&many)
}

func floodPings(t *testing.T, y *yard) {
	f := speak(t, y.address)
	var many bytes.Buffer
	w := http2.NewFramer(&many, nil)
	for range times(100_000) {
		_ = w.WritePing(false, [8]byte{})
	}
	f.pour(&many)
	c := raw(t, y.address) // and nobody reads what comes back
	_, _ = io.WriteString(c, http2.ClientPreface)
	w = http2.NewFramer(&many, nil)
	_ = w.WriteSettings()
	for range times(200_000) {
		_ = w.WritePing(false, [8]byte{})
	}
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = many.WriteTo(c)
	c.Close()
}

// floodHeaderLists are small on the wire and large when they are read.
func floodHeaderLists(t *testing.T, y *yard) {
	for range times(50) {
		f := speak(t, y.address)
		block := floodCall("lists", "x-large", strings.Repeat("x", 3000))
		block = append(block, bytes.Repeat([]byte{0xbe}, 10_000)...) // the field that was just sent, again and again
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true, EndStream: true}); err != nil {
			t.Fatal(err)
		}
		<-f.over
		f.conn.Close()
		<-f.done
	}
}

func floodOddFrames(t *testing.T, y *yard) {
	for name, say := range map[string]func(f *frames) error{
		"data on no stream": func(f *frames) error { return f.WriteData(7, true, []byte("x")) },
		"an even stream": func(f *frames) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2, BlockFragment: floodCall("odd"), EndHeaders: true, EndStream: true})
		},
		"frames of no size":       func(f *frames) error { return f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 0}) },
		"no window":               func(f *frames) error { return f.WriteWindowUpdate(0, 0) },
		"a window that overflows": func(f *frames) error { return f.WriteWindowUpdate(0, 1<<31-1) },
		"a giant frame":           func(f *frames) error { return f.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<20)) },
		"a push": func(f *frames) error {
			return f.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: floodCall("odd"), EndHeaders: true})
		},
		"bad fields": func(f *frames) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff}, EndHeaders: true})
		},
	} {
		f := speak(t, y.address)
		f.AllowIllegalWrites = true
		if err := say(f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = f.conn.(*net.TCPConn).CloseWrite()
		<-f.done
	}
	// What HTTP/1 could be made of by fields that are none.
	for _, more := range [][]string{
		{"transfer-encoding", "chunked"},
		{"connection", "x-api-key"},
		{"x: y\r\nx-api-key", "other"},
		{"x-a", "b\r\nX-Api-Key: other"},
		{"X-Upper", "a"},
		{":path", "/probe"},
		{":authority", "b"},
		{"host", "b"},
		{"content-length", "5"},
		{"te", "gzip"},
		{"upgrade", "websocket"},
		{":protocol", "websocket"},
		{"x a", "b"},
		{"x\x00", "b"},
		{"", "b"},
	} {
		f := speak(t, y.address)
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: floodCall("fields", more...), EndHeaders: true, EndStream: true}); err != nil {
			t.Fatal(err)
		}
		<-f.over
		f.conn.Close()
		<-f.done
	}
	for _, path := range []string{"flood", "*", "http://b/flood", "/x/../flood", "//flood", "/flood#", "/fl%6fod", " /flood", "/flood HTTP/1.1\r\nX: y", ""} {
		f := speak(t, y.address)
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		for _, h := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", path}, {":authority", "a"}, {"x-api-key", "paths"}} {
			_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
			t.Fatal(err)
		}
		<-f.over
		f.conn.Close()
		<-f.done
	}
}

// floodBodies sends more than may be sent, in frames of gRPC that claim to be of 4 GB.
func floodBodies(t *testing.T, y *yard) {
	for range times(50) {
		f := speak(t, y.address)
		var many bytes.Buffer
		w := http2.NewFramer(&many, nil)
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: floodCall("bodies", "content-type", "application/grpc"), EndHeaders: true})
		_ = w.WriteData(1, false, []byte("\x00\xff\xff\xff\xff"))
		for range 40 {
			_ = w.WriteData(1, false, make([]byte, 16<<10))
		}
		_, _ = many.WriteTo(f.conn)
		<-f.over
		f.conn.Close()
		<-f.done
	}
}

// floodStreams begins more requests at once than may be, whose bodies never come.
func floodStreams(t *testing.T, y *yard) {
	for range 4 {
		f := speak(t, y.address)
		var many bytes.Buffer
		w := http2.NewFramer(&many, nil)
		for i := range times(10_000) {
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: floodCall("streams"), EndHeaders: true})
		}
		_, _ = many.WriteTo(f.conn)
		<-f.over // the first that is refused
		f.conn.Close()
		<-f.done
	}
}

// floodHalves leave in the middle.
func floodHalves(t *testing.T, y *yard) {
	for i := range times(2000) {
		c := raw(t, y.address)
		_, _ = io.WriteString(c, []string{
			"GET /flood HT", "GET /flood HTTP/1.1\r\nHost: a\r\nX-Api-Key: halves\r\n\r\n", "POST /flood HTTP/1.1\r\nHost: a\r\nX-Api-Key: halves\r\nContent-Length: 10\r\n\r\nabc",
			"POST /flood HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "\x16\x03\x01\x02\x00\x01", "\x00",
		}[i%6])
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

// crowd are clients that say a little and then nothing, or do not read what they are told.
type crowd struct{ silent, deaf []net.Conn }

// slowCrowd has some stop in the middle of a request, and some in the middle of a TLS handshake.
func slowCrowd(t *testing.T, y *yard) *crowd {
	t.Helper()
	directory := t.TempDir()
	pair := certtest.New(t).Issue(t, "localhost")
	write(t, filepath.Join(directory, "crt"), string(pair.Cert))
	write(t, filepath.Join(directory, "key"), string(pair.Key))
	_, secure := startGatewayOn(t, fmt.Sprintf("{address: '127.0.0.1:0', tls: {cert: %q, key: %q}}", filepath.Join(directory, "crt"), filepath.Join(directory, "key")), fmt.Sprintf(`
  upstreams: {app: {servers: 'http://%s', timeouts: {idle: 2s}}}
  routes: [{upstream: app, max_body: off}]`, y.app.address), "rules: []", "")
	c := new(crowd)
	for i := range times(3000) {
		conn := raw(t, y.address)
		_, _ = io.WriteString(conn, []string{"", "GET", "GET /flood HTTP/1.1\r\nHost: a\r\nX: ", "GET /flood HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n\r\n"}[i%5])
		c.silent = append(c.silent, conn)
	}
	for i := range times(1000) {
		conn := raw(t, secure)
		_, _ = io.WriteString(conn, []string{"", "\x16", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"}[i%3])
		c.silent = append(c.silent, conn)
	}
	for i := range times(400) { // a body that stops, and an answer that nobody reads
		conn, err := tls.Dial("tcp", secure, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // it is an attacker
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_, _ = io.WriteString(conn, []string{
			"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc", "POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc", "POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
			"GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
		}[i%4])
		if i%4 == 3 {
			c.deaf = append(c.deaf, conn)
		} else {
			c.silent = append(c.silent, conn)
		}
	}
	return c
}

// reaped waits until the gateway has hung up on all of them, which it does by itself.
func (c *crowd) reaped(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(time.Minute) // far more than it takes
	for _, conn := range c.silent {
		_ = conn.SetReadDeadline(deadline)
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("who says nothing is not hung up on")
		}
	}
	for _, conn := range c.deaf { // by now
		_ = conn.SetReadDeadline(deadline)
		if n, err := io.Copy(io.Discard, conn); n >= largeAnswer || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("who reads nothing was sent %d bytes, %v", n, err)
		}
	}
}
