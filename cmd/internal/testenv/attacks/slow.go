package attacks

import (
	"context"
	"io"
	"net"

	"golang.org/x/net/http2"
)

// Beginnings are the beginnings of requests over HTTP/1, HTTP/2 and TLS after which a slow client sends nothing more.
var Beginnings = []string{
	"", "GET", "GET / HTTP/1.1\r\nHost: a\r\nX: ", "GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n\r\n", "PRI * HT", "\x16", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}

// Halves are incomplete requests after which a client closes the connection.
var Halves = []string{
	"GET / HT", "GET /half HTTP/1.1\r\nHost: a\r\nX-Api-Key: halves\r\n\r\n", "POST /half HTTP/1.1\r\nHost: a\r\nX-Api-Key: halves\r\nContent-Length: 10\r\n\r\nabc",
	"POST /half HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "\x16\x03\x01\x02\x00\x01", "\x00",
}

// SlowBodies are requests whose bodies are incomplete.
var SlowBodies = []string{
	"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc", "POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc",
	"POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
}

// Garbage is input that is invalid for every HTTP, gRPC or RESP server.
var Garbage = []string{
	"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x00", "PRI * HTTP/2.0\r\n\r\n",
	http2.ClientPreface + "\x00\xff\xff\x09\xff\x7f\xff\xff\xff", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nzz\r\n",
	"*1\r\n$4\r\nPING\r\n", "*1000000000\r\n", "$-9\r\n",
}

// Hold sends text and returns the connection, without sending or reading more. The caller closes it.
func Hold(ctx context.Context, to Target, text string) (net.Conn, error) {
	c, err := to.Dial(ctx)
	if err != nil {
		return nil, err
	}
	_, _ = io.WriteString(c, text)
	return c, nil
}
