package forwardauthtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"net/textproto"
	"strconv"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// saw is the response header in which the application reports the request that it received: the request line without
// the version, the API key, and the number of body bytes. A response without it is not from the application.
const saw = "App-Saw"

// App starts the application behind the proxy and returns its address. It accepts any request line, so that it rejects
// nothing that another application might serve.
func App(t testing.TB) (address string) {
	t.Helper()
	return tcptest.Serve(t, func(c net.Conn) {
		for r := bufio.NewReader(c); ; {
			if err := answer(r, c); err != nil {
				return
			}
		}
	})
}

func answer(r *bufio.Reader, w io.Writer) error {
	head := textproto.NewReader(r)
	line, err := head.ReadLine()
	if err != nil {
		return err
	}
	header, err := head.ReadMIMEHeader()
	if err != nil {
		return err
	}
	var body io.Reader = strings.NewReader("")
	if header.Get("Transfer-Encoding") == "chunked" {
		body = httputil.NewChunkedReader(r)
	} else if text := header.Get("Content-Length"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		body = io.LimitReader(r, n)
	}
	n, err := io.Copy(io.Discard, body)
	if err != nil {
		return err
	}
	asked := line[:max(0, strings.LastIndexByte(line, ' '))]
	_, err = fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n%s: %s key=%s body=%d\r\n\r\n",
		saw, asked, header.Get("X-Api-Key"), n)
	return err
}
