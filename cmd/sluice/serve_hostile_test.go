package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice/internal/rls"
	"github.com/sluiceproject/sluice/internal/rlstest"
)

// times is a tenth of a number unless SLUICE_SOAK is set.
func times(n int) int {
	if os.Getenv("SLUICE_SOAK") != "" {
		return n
	}
	return n / 10
}

// victim is a service that others attack.
type victim struct {
	*process
	honest pb.RateLimitServiceClient
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	p := startServe(t, fmt.Sprintf(`
rules: {paths: [%q]}
listeners:
  grpc: {address: '127.0.0.1:0', max_message_size: 1MiB}
  http: {address: '127.0.0.1:0'}
logging: {level: info}
`, rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1000000}}\n")))
	v := &victim{p, p.client(t)}
	v.serves(t)
	return v
}

// serves wants who means well to be served, on a connection that was there and on a new one.
func (v *victim) serves(t *testing.T) {
	t.Helper()
	for _, c := range []pb.RateLimitServiceClient{v.honest, v.client(t)} {
		if got := rlstest.Answer(t.Context(), c, "d", "k=v"); !strings.HasPrefix(got, "OK: OK 1000000/YEAR") {
			t.Errorf("who means well is told %s", got)
		}
	}
	if got := v.get(t, "/readyz"); got != 200 {
		t.Errorf("/readyz answers %d", got)
	}
	if got := v.operate(t, "GET", "/v1/status", ""); got.status != 200 {
		t.Errorf("an operator is told %d %s", got.status, got.body)
	}
}

// resident is the memory that the process has, in MiB, or 0 where that is not told.
func (v *victim) resident(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib >> 10
		}
	}
	return 0
}

// raw is a connection on which anything can be said.
func raw(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// frames is a connection that speaks HTTP/2 frame by frame. What the server says is read and counted by kind.
type frames struct {
	*http2.Framer
	conn net.Conn
	seen map[http2.FrameType]int
	told map[http2.SettingID]uint32
	over chan struct{} // closed when the server has ended a stream or said goodbye
	done chan struct{} // closed when the server has closed the connection
}

func speak(t *testing.T, address string) *frames {
	t.Helper()
	c := raw(t, address)
	f := &frames{
		Framer: http2.NewFramer(c, c), conn: c, seen: map[http2.FrameType]int{}, told: map[http2.SettingID]uint32{},
		over: make(chan struct{}), done: make(chan struct{}),
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(f.done)
		over := sync.OnceFunc(func() { close(f.over) })
		defer over()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			h := frame.Header()
			f.seen[h.Type]++
			if s, ok := frame.(*http2.SettingsFrame); ok {
				_ = s.ForeachSetting(func(s http2.Setting) error { f.told[s.ID] = s.Val; return nil })
			}
			if h.Type == http2.FrameRSTStream || h.Type == http2.FrameGoAway || h.Type == http2.FrameHeaders && h.Flags.Has(http2.FlagHeadersEndStream) ||
				h.Type == http2.FrameData && h.Flags.Has(http2.FlagDataEndStream) {
				over()
			}
		}
	}()
	return f
}

// headers are those of a request to the service, with more.
func headers(more ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	all := append([]string{
		":method", "POST", ":scheme", "http", ":path", "/" + rls.ServiceName + "/ShouldRateLimit", ":authority", "x",
		"content-type", "application/grpc", "te", "trailers",
	}, more...)
	for i := 0; i < len(all); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]}) // to a buffer
	}
	return b.Bytes()
}

// Whatever is said on whichever port, and however little of it, the service goes on and needs no more memory.
func TestServeHostile(t *testing.T) {
	v := newVictim(t)
	before := v.resident(t)
	attacks := []struct {
		name string
		do   func(*testing.T, *victim)
	}{
		{"garbage", garbage},
		{"slow clients", slowClients},
		{"giant headers", giantHeaders},
		{"headers without an end", endlessHeaders},
		{"rapid resets", rapidResets},
		{"many descriptors", manyDescriptors},
		{"odd frames", oddFrames},
		{"bad bodies", badBodies},
	}
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			a.do(t, v)
			v.serves(t)
		})
	}
	const most = 100
	if after := v.resident(t); after > before+most {
		t.Errorf("the process had %d MiB and now has %d", before, after)
	}
}

// The bounds that clients must keep to are told, so that those who mean well do.
func TestServeTellsBounds(t *testing.T) {
	p := startServe(t, "listeners: {grpc: {address: '127.0.0.1:0', max_streams: 77, max_header_size: 5KiB}, http: {address: '127.0.0.1:0'}}")
	f := speak(t, p.grpc)
	_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
	_ = f.conn.(*net.TCPConn).CloseWrite()
	<-f.done
	for id, want := range map[http2.SettingID]uint32{http2.SettingMaxConcurrentStreams: 77, http2.SettingMaxHeaderListSize: 5 << 10} {
		if f.told[id] != want {
			t.Errorf("%v is %d, want %d", id, f.told[id], want)
		}
	}
}

func garbage(t *testing.T, v *victim) {
	noise := make([]byte, 4096)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	texts := []string{
		string(noise), "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x00", "PRI * HTTP/2.0\r\n\r\n",
		http2.ClientPreface + string(noise), "POST /readyz HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nzz\r\n",
		"GET /" + strings.Repeat("a", 1<<16) + " HTTP/1.1\r\n\r\n", "*1\r\n$4\r\nPING\r\n",
	}
	for range times(100) {
		for _, address := range []string{v.grpc, v.http, v.admin} {
			for _, text := range texts {
				c := raw(t, address)
				_, _ = io.WriteString(c, text) // it may hang up before all is said
				_ = c.Close()
			}
		}
	}
}

// slowClients say a little and then nothing, or never read what they are told.
func slowClients(t *testing.T, v *victim) {
	var silent []net.Conn
	for i := range times(2000) {
		c := raw(t, []string{v.grpc, v.http, v.admin}[i%3])
		text := []string{"", "PRI * HT", "GET /readyz HT", http2.ClientPreface}[i/3%4]
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		if text != http2.ClientPreface {
			silent = append(silent, c)
		}
	}
	if os.Getenv("SLUICE_SOAK") != "" { // it takes the five seconds that they have
		for _, c := range silent {
			_, _ = io.Copy(io.Discard, c) // until the server hangs up
		}
	}
	f := speak(t, v.grpc)
	for i := range times(1000) { // requests whose body never comes, more than may be at once
		if err := f.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: headers(), EndHeaders: true,
		}); err != nil {
			break // it has hung up
		}
	}
}

func giantHeaders(t *testing.T, v *victim) {
	// A message, so that a request that is taken is answered with data.
	body := append([]byte{0, 0, 0, 0, 12}, "\x0a\x01d\x12\x07\x0a\x05\x0a\x01k\x12\x00"...)
	ask := func(size int) (answered bool) {
		f := speak(t, v.grpc)
		block := headers("x-large", strings.Repeat("x", size))
		const most = 16 << 10
		first := min(most, len(block))
		err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:first], EndHeaders: first == len(block)})
		for rest := block[first:]; len(rest) > 0 && err == nil; rest = rest[min(most, len(rest)):] {
			err = f.WriteContinuation(1, len(rest) <= most, rest[:min(most, len(rest))])
		}
		_ = f.WriteData(1, true, body)
		<-f.over
		_ = f.conn.(*net.TCPConn).CloseWrite()
		<-f.done
		return f.seen[http2.FrameData] > 0
	}
	if !ask(10 << 10) {
		t.Error("a request with large headers is not answered")
	}
	for range times(50) {
		if ask(17<<10) || ask(100<<10) {
			t.Error("a request with giant headers is answered")
		}
	}
}

// endlessHeaders never ends its headers, which goes on until the server hangs up.
func endlessHeaders(t *testing.T, v *victim) {
	f := speak(t, v.grpc)
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers()})
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
}

// rapidResets begins requests and takes them back at once.
func rapidResets(t *testing.T, v *victim) {
	f := speak(t, v.grpc)
	block, body := headers(), []byte{0, 0, 0, 0, 0} // of an empty message
	var many bytes.Buffer
	writer := http2.NewFramer(&many, nil)
	for i := range times(50_000) {
		id := uint32(2*i + 1)
		if err := errors.Join(
			writer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}),
			writer.WriteData(id, true, body),
			writer.WriteRSTStream(id, http2.ErrCodeCancel),
		); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = many.WriteTo(f.conn) // it may hang up, which is as good
	_ = f.conn.(*net.TCPConn).CloseWrite()
	<-f.done
}

func manyDescriptors(t *testing.T, v *victim) {
	entry := []byte("\x12\x05\x0a\x03\x0a\x01k") // a descriptor with one entry
	req := &pb.RateLimitRequest{Domain: "d"}
	req.ProtoReflect().SetUnknown(bytes.Repeat(entry, 100_000)) // as cheap to send as it is to write
	for range times(100) {
		_, err := v.honest.ShouldRateLimit(t.Context(), req)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "more than 32 descriptors") {
			t.Fatalf("got %v", err)
		}
	}
	req = &pb.RateLimitRequest{Domain: strings.Repeat("d", 2<<20)}
	if _, err := v.honest.ShouldRateLimit(t.Context(), req); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
}

// oddFrames are legal ones in places where they are not, and settings that make no sense.
func oddFrames(t *testing.T, v *victim) {
	for name, say := range map[string]func(f *frames) error{
		"data on no stream": func(f *frames) error { return f.WriteData(7, true, []byte("x")) },
		"an even stream": func(f *frames) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2, BlockFragment: headers(), EndHeaders: true})
		},
		"frames of no size":        func(f *frames) error { return f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 0}) },
		"no window":                func(f *frames) error { return f.WriteWindowUpdate(0, 0) },
		"a window that overflows":  func(f *frames) error { return f.WriteWindowUpdate(0, 1<<31-1) },
		"continuation of nothing":  func(f *frames) error { return f.WriteContinuation(1, true, nil) },
		"an unknown kind of frame": func(f *frames) error { return f.WriteRawFrame(99, 0xff, 1, []byte("x")) },
		"a truncated header block": func(f *frames) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff}, EndHeaders: true})
		},
		"many pings": func(f *frames) (err error) {
			for i := 0; i < times(10_000) && err == nil; i++ {
				err = f.WritePing(false, [8]byte{})
			}
			return nil
		},
		"many settings": func(f *frames) (err error) {
			for i := 0; i < times(10_000) && err == nil; i++ {
				err = f.WriteSettings()
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := speak(t, v.grpc)
			f.AllowIllegalWrites = true
			if err := say(f); err != nil {
				t.Fatal(err)
			}
			_ = f.conn.(*net.TCPConn).CloseWrite()
			<-f.done
		})
	}
}
