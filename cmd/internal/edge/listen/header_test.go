package listen_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
)

// Over HTTP/2 a header list of at most MaxHeaderBytes + 320 bytes is accepted, counting 32 bytes per field as in RFC 9113.
// docs/bounds.md documents this bound.
func TestHTTP2HeaderBorder(t *testing.T) {
	const border = 8<<10 + 320
	r := start(t, listen.Config{Gateway: listen.Gateway{
		Endpoint: listen.Endpoint{Address: "127.0.0.1:0"}, MaxHeaderBytes: 8 << 10, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}})
	for size, want := range map[int]string{border: "200", border + 1: "431"} {
		c := from(t, "127.0.0.1", r.GatewayAddr().String())
		_, _ = io.WriteString(c, http2.ClientPreface)
		f := http2.NewFramer(c, c)
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		_ = f.WriteSettings()
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		for _, field := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":path", Value: "/"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"}} {
			size -= int(field.Size())
			_ = e.WriteField(field)
		}
		_ = e.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("x", size-1-32)})
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if h, ok := frame.(*http2.MetaHeadersFrame); ok {
				if got := h.PseudoValue("status"); got != want {
					t.Errorf("a list that is to get %s gets %s", want, got)
				}
				break
			}
		}
	}
}
