package main

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A proxyClient sends the same request repeatedly on each of its connections.
type proxyClient struct {
	load  *gatewayLoad
	conns []net.Conn
}

func dialProxy(ctx context.Context, addr string, l *gatewayLoad) (*proxyClient, error) {
	c := &proxyClient{load: l}
	deadline, _ := ctx.Deadline()
	for range l.conns {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			c.close()
			return nil, err
		}
		_ = conn.SetDeadline(deadline)
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

func (c *proxyClient) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

// first sends requests until one gets the expected response. A limiter must first allow some, and then deny.
func (c *proxyClient) first(ctx context.Context, limits bool) error {
	b := make([]byte, 8<<10)
	for i := 0; ctx.Err() == nil; i++ {
		head, _, err := exchangeOne(c.conns[0], []byte(c.load.request), b)
		if err != nil {
			return err
		}
		switch ok := strings.HasPrefix(head, c.load.status); {
		case limits && i == 0 && ok:
			return failf("it denies the first request: %.200s", head)
		case ok:
			return nil
		case !limits || i > gatewayLimit:
			return failf("response to request %d: %.200s", i+1, head)
		}
	}
	return ctx.Err()
}

// loop sends requests, the same number on each connection, and checks every response.
func (c *proxyClient) loop(ops int) (*taken, error) {
	each := ops / len(c.conns)
	waits, faults := make([][]time.Duration, len(c.conns)), make([]error, len(c.conns))
	var all sync.WaitGroup
	begun := time.Now()
	for i, conn := range c.conns {
		all.Go(func() { waits[i], faults[i] = c.drive(conn, each) })
	}
	all.Wait()
	t := &taken{elapsed: time.Since(begun), waits: slices.Concat(waits...)}
	slices.Sort(t.waits)
	for _, err := range faults {
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (c *proxyClient) drive(conn net.Conn, n int) (waits []time.Duration, err error) {
	b, request := make([]byte, 8<<10), []byte(c.load.request)
	waits = make([]time.Duration, 0, n)
	for range n {
		from := time.Now()
		head, body, err := exchangeOne(conn, request, b)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(head, c.load.status) {
			return nil, failf("answered %.200s", head)
		}
		if c.load.name != loadRefused && !bytes.Equal(body, originBody) {
			return nil, failf("unexpected response body %.200q", body)
		}
		waits = append(waits, time.Since(from))
	}
	return waits, nil
}

var (
	headEnd    = []byte("\r\n\r\n")
	lengthName = []byte("\r\nContent-Length: ")
)

// exchangeOne sends a request and reads its response, which must have a Content-Length, into b.
func exchangeOne(conn net.Conn, request, b []byte) (head string, body []byte, err error) {
	if _, err := conn.Write(request); err != nil {
		return "", nil, err
	}
	for end, size := 0, -1; ; {
		n, err := conn.Read(b[end:])
		if err != nil {
			return "", nil, err
		}
		end += n
		at := bytes.Index(b[:end], headEnd)
		if at < 0 {
			continue
		}
		if size < 0 {
			i := bytes.Index(b[:at], lengthName)
			if i < 0 {
				return "", nil, failf("response without a Content-Length: %.300q", b[:end])
			}
			digits, _, _ := bytes.Cut(b[i+len(lengthName):end], []byte("\r"))
			if size, err = strconv.Atoi(string(digits)); err != nil {
				return "", nil, failf("response with the Content-Length %q", digits)
			}
		}
		switch whole := at + len(headEnd) + size; {
		case end == whole:
			return string(b[:at]), b[at+len(headEnd) : end], nil
		case end > whole || whole > len(b):
			return "", nil, failf("response of %d bytes, of which %d arrived", whole, end)
		}
	}
}

// countOf returns how many requests a server has served.
func countOf(addr string) (int, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, body, err := exchangeOne(conn, []byte("GET /count HTTP/1.1\r\nHost: origin\r\n\r\n"), make([]byte, 8<<10))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(body))
}
