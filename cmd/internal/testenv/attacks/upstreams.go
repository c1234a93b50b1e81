package attacks

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// Interims returns messages, by name, that an upstream sends before or instead of a final response: 1xx with all codes,
// and connections that end in the middle.
func Interims() map[string]string {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	hint := func(code int) string {
		return fmt.Sprintf("HTTP/1.1 %d Wait\r\nLink: </a>\r\nX-Early: 1\r\n\r\n", code)
	}
	return map[string]string{
		"100":           hint(100) + ok,
		"102":           hint(102) + ok,
		"103":           hint(103) + ok,
		"199":           hint(199) + ok,
		"103 twice":     hint(103) + hint(103) + ok,
		"103 and close": hint(103) + "close",
		"102 and half":  hint(102) + "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf, close",
		"103 and 999":   hint(103) + "HTTP/1.1 999 No\r\nContent-Length: 0\r\n\r\n",
		"nothing":       "close",
	}
}

// Statuses are invalid status codes, and those at the ends of the range.
var Statuses = []string{"000", "001", "010", "099", "100", "199", "200", "299", "599", "600", "999", "1000", "9999", "-1", "-200", "+20", "2e2", "20", "2", "", "abc", "２００"}

// LargeHeaders returns header sections, by name, near the buffer size of a proxy: over 32 KiB, with 300 fields, or with
// a body where none is permitted.
func LargeHeaders() map[string]string {
	x := strings.Repeat("x", 40<<10)
	return map[string]string{
		"40 KiB":          "HTTP/1.1 200 OK\r\nX-Large: " + x + "\r\nContent-Length: 2\r\n\r\nok",
		"40 KiB and 204":  "HTTP/1.1 204 No Content\r\nX-Large: " + x + "\r\n\r\n",
		"40 KiB and 304":  "HTTP/1.1 304 Not Modified\r\nX-Large: " + x + "\r\n\r\n",
		"300 fields":      "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Many: x\r\n", 300) + "Content-Length: 2\r\n\r\nok",
		"header and body": "HTTP/1.1 200 OK\r\nX-Large: " + x[:30<<10] + "\r\nContent-Length: 4096\r\n\r\n" + x[:4096],
		"16 KiB of body":  "HTTP/1.1 200 OK\r\nContent-Length: 16384\r\n\r\n" + x[:16<<10],
	}
}

// ServeHTTP1 responds to requests on l like a compromised upstream, until l is closed: with Responses by target, and to
// other targets with one of Responses, Interims, Statuses and LargeHeaders at random.
func ServeHTTP1(l net.Listener) {
	byTarget := Responses()
	var all []string
	for _, set := range []map[string]string{Interims(), LargeHeaders()} {
		for _, text := range set {
			all = append(all, text)
		}
	}
	for _, text := range byTarget {
		if len(text) < 1<<20 { // the larger ones are requested by name
			all = append(all, text)
		}
	}
	for _, s := range Statuses {
		all = append(all, "HTTP/1.1 "+s+" No\r\nContent-Length: 0\r\n\r\n")
	}
	tcptest.Accept(l, func(c net.Conn) {
		for in := bufio.NewReader(c); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			text, ok := byTarget[r.URL.Path]
			if !ok {
				text = all[rand.IntN(len(all))]
			}
			text, end := strings.CutSuffix(text, "close")
			if rand.IntN(8) == 0 { // close in the middle
				text, end = text[:rand.IntN(len(text)+1)], true
			}
			if _, err := io.WriteString(c, text); err != nil || end {
				return
			}
		}
	})
}

// ServeHTTP2 responds to requests over HTTP/2 without TLS on l like a compromised upstream, until l is closed. Its
// behaviour is random for each connection and each request.
func ServeHTTP2(l net.Listener) {
	tcptest.Accept(l, func(c net.Conn) {
		if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(c, c)
		f.AllowIllegalWrites = true
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		if all := Violations(); rand.IntN(2) == 0 {
			all[slices.Sorted(maps.Keys(all))[rand.IntN(len(all))]].Serve(c, f)
			return
		}
		_ = f.WriteSettings()
		ReadRequests(f, func(h *http2.MetaHeadersFrame) bool { return misbehave(f, c, h.StreamID) })
	})
}

// misbehave responds to one request over HTTP/2. It reports whether the connection stays open.
func misbehave(f *http2.Framer, c net.Conn, id uint32) bool {
	head := func(end bool, fields ...string) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: HeaderBlock(fields...), EndHeaders: true, EndStream: end})
	}
	switch rand.IntN(20) {
	case 0:
		_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
		return false
	case 1:
		_ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream)
	case 2:
		_ = f.WriteRSTStream(id, http2.ErrCodeInternal)
	case 3:
		head(false, ":status", "200", "content-length", "5", "content-length", "7")
		_ = f.WriteData(id, true, []byte("hello"))
	case 4:
		head(false, ":status", "200", "content-length", "+5")
		_ = f.WriteData(id, true, []byte("hello"))
	case 5:
		head(true, ":status", "101")
	case 6:
		for range 1000 {
			head(false, ":status", "103", "link", "</a>")
		}
		head(true, ":status", "200")
	case 7:
		head(false, ":status", "200", "content-length", "100")
		_ = f.WriteData(id, true, []byte("short"))
	case 8:
		head(false, ":status", "200", "content-length", "2")
		_ = f.WriteData(id, true, []byte("too long"))
	case 9:
		head(true, ":status", Statuses[rand.IntN(len(Statuses))])
	case 10:
		block := HeaderBlock(":status", "200", "x-large", strings.Repeat("x", 3000))
		block = append(block, bytes.Repeat([]byte{0xbe}, 1000)...)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true})
	case 11:
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0xff}, EndHeaders: true})
	case 12:
		_ = f.WriteWindowUpdate(0, 1<<31-1)
		return false
	case 13:
		for range 1000 {
			_ = f.WritePing(false, [8]byte{})
		}
		head(true, ":status", "204")
	case 14:
		_ = f.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: 2, BlockFragment: HeaderBlock(":method", "GET"), EndHeaders: true})
	case 15:
		head(false, ":status", "200")
		head(true, "content-length", "5", ":status", "200", "transfer-encoding", "chunked")
	case 16:
		_, _ = c.Write(make([]byte, 100))
		return false
	case 17:
		head(false, ":status", "200", "connection", "close", "transfer-encoding", "chunked", "X-Upper", "a")
		_ = f.WriteData(id, true, []byte("5\r\nhello\r\n0\r\n\r\n"))
	case 18:
		return false
	default:
		head(false, ":status", "200")
		_ = f.WriteData(id, true, []byte("ok"))
	}
	return true
}
