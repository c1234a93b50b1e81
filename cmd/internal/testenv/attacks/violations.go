package attacks

import (
	"bytes"
	"net"
	"time"

	"golang.org/x/net/http2"
)

// ReadRequests calls each for every request, until it returns false or the connection ends.
func ReadRequests(f *http2.Framer, each func(h *http2.MetaHeadersFrame) bool) {
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

// A Violation is a behaviour of an HTTP/2 server that violates the protocol.
type Violation struct {
	Settings []http2.Setting
	// Respond is called when a request has arrived, and reports whether the server continues to read. Nil means that
	// the server does nothing.
	Respond func(conn net.Conn, f *http2.Framer, id uint32) bool
}

// Serve runs the server on a connection, after the client's preface.
func (v Violation) Serve(conn net.Conn, f *http2.Framer) {
	_ = f.WriteSettings(v.Settings...)
	ReadRequests(f, func(h *http2.MetaHeadersFrame) bool { return v.Respond == nil || v.Respond(conn, f, h.StreamID) })
}

// Violations returns violations by name.
func Violations() map[string]Violation {
	const most = 1<<31 - 1
	wide := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: most}}
	// silent waits until the gateway closes the connection, without reading.
	silent := func(conn net.Conn) {
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			<-time.After(20 * time.Millisecond)
			if _, err := conn.Write([]byte{0, 0, 4, 3, 0, 0, 1, 0, 1, 0, 0, 0, 8}); err != nil { // RST_STREAM for an unknown stream
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
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: HeaderBlock(pairs...), EndHeaders: true, EndStream: end})
	}
	on := func(do func(f *http2.Framer, id uint32)) Violation {
		return Violation{Respond: func(_ net.Conn, f *http2.Framer, id uint32) bool { do(f, id); return true }}
	}
	return map[string]Violation{
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
			Settings: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}},
			Respond:  func(net.Conn, *http2.Framer, uint32) bool { return true },
		},
		"no streams": {Settings: []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 0}}},
		"no further streams": on(func(f *http2.Framer, _ uint32) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
		}),
		"settings": {Respond: flood(func(f *http2.Framer, _ uint32) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		})},
		"pings":        {Respond: flood(func(f *http2.Framer, _ uint32) { _ = f.WritePing(false, [8]byte{}) })},
		"acks":         {Respond: flood(func(f *http2.Framer, _ uint32) { _ = f.WriteSettingsAck() })},
		"resets":       {Respond: flood(func(f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id+2, http2.ErrCodeCancel) })},
		"reset of all": on(func(f *http2.Framer, _ uint32) { _ = f.WriteRSTStream(0, http2.ErrCodeCancel) }),
		"endless headers": {Respond: func(conn net.Conn, f *http2.Framer, id uint32) bool {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: HeaderBlock(":status", "200")})
			return flood(func(f *http2.Framer, id uint32) { _ = f.WriteContinuation(id, false, HeaderBlock("x", "y")) })(conn, f, id)
		}},
		"empty continuations": {Respond: func(conn net.Conn, f *http2.Framer, id uint32) bool {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: HeaderBlock(":status", "200")})
			return flood(func(f *http2.Framer, id uint32) { _ = f.WriteContinuation(id, false, nil) })(conn, f, id)
		}},
		"early hints": {Respond: flood(func(f *http2.Framer, id uint32) { head(f, id, false, ":status", "103", "link", "</a>") })},
		"empty data": {Respond: func(conn net.Conn, f *http2.Framer, id uint32) bool {
			head(f, id, false, ":status", "200")
			return flood(func(f *http2.Framer, id uint32) { _ = f.WriteData(id, false, nil) })(conn, f, id)
		}},
		"padding": {Respond: func(conn net.Conn, f *http2.Framer, id uint32) bool {
			head(f, id, false, ":status", "200")
			return flood(func(f *http2.Framer, id uint32) { _ = f.WriteDataPadded(id, false, nil, make([]byte, 100)) })(conn, f, id)
		}},
		"data of unknown streams": on(func(f *http2.Framer, id uint32) { _ = f.WriteData(id+100, true, []byte("x")) }),
		"data of closed streams":  {Respond: flood(func(f *http2.Framer, _ uint32) { _ = f.WriteData(1, false, make([]byte, 100)) })},
		"data before headers":     on(func(f *http2.Framer, id uint32) { _ = f.WriteData(id, true, []byte("x")) }),
		"endless trailers": on(func(f *http2.Framer, id uint32) {
			head(f, id, false, ":status", "200")
			head(f, id, false, "x", "y")
		}),
		"push": on(func(f *http2.Framer, id uint32) {
			_ = f.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: 2, BlockFragment: HeaderBlock(":method", "GET"), EndHeaders: true})
		}),
		"GOAWAY for none": on(func(f *http2.Framer, _ uint32) { _ = f.WriteGoAway(most, http2.ErrCodeNo, nil) }),
		"compression": on(func(f *http2.Framer, id uint32) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0xff}, EndHeaders: true})
		}),
		"not read": {Settings: wide, Respond: func(conn net.Conn, f *http2.Framer, _ uint32) bool {
			_ = f.WriteWindowUpdate(0, most-1<<16)
			silent(conn)
			return false
		}},
		"read byte by byte": {Settings: wide, Respond: func(conn net.Conn, f *http2.Framer, _ uint32) bool {
			_ = f.WriteWindowUpdate(0, most-1<<16)
			for range 200 { // longer than the gateway's timeout
				if _, err := conn.Read(make([]byte, 1)); err != nil {
					break
				}
				<-time.After(20 * time.Millisecond)
			}
			return false
		}},
	}
}
