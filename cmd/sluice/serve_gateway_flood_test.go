package main

import (
	"context"
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

	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

// Clients that send too much, too slowly or wrong frames get no more than their limit, and other clients are served.
func TestGatewayFloods(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.counted(t)
	slow := slowCrowd(t, y)
	before := (&victim{process: y.process.process}).resident(t)
	to := attacks.Target{Address: y.address, Path: "/flood", Scale: scale()}
	for _, attack := range append(attacks.HTTP2(), attacks.Attack{Name: "half a request", Run: floodHalves}) {
		t.Run(attack.Name, func(t *testing.T) {
			b := y.beside(t)
			b.more(5) // the other client sends requests before the attack
			if err := attack.Run(t.Context(), to); err != nil {
				t.Error(err)
			}
			b.more(5) // and after it
			b.served(t)
		})
	}
	const most = 400 // MiB, mostly used by the race detector
	if after := (&victim{process: y.process.process}).resident(t); after > before+most {
		t.Errorf("the memory of the process grew from %d MiB to %d", before, after)
	}
	y.limited(t)
	b := y.beside(t)
	slow.reaped(t)
	b.more(10)
	b.served(t)
}

// limited fails the test if the upstream got more than 20 requests of a key, which is its limit.
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
			t.Errorf("key %q: %d requests, the limit is 20", key, n)
		}
	}
	if len(odd) > 0 || len(keys) < 2 || keys["lists"] > 0 { // 30 MB of headers are rejected
		t.Errorf("the upstream got keys %v and %q", keys, odd)
	}
	for _, key := range []string{"resets", "streams"} { // requests that began are counted
		if got := y.say(t, "GET /flood HTTP/1.1\r\nHost: a\r\nX-Api-Key: "+key+"\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 429 ") {
			t.Errorf("the limit of key %q is not used up: %.100q", key, got)
		}
	}
}

// floodHalves sends incomplete requests and closes the connections.
func floodHalves(ctx context.Context, to attacks.Target) error {
	for i := range times(2000) {
		if err := attacks.Drop(ctx, to, attacks.Halves[i%len(attacks.Halves)]); err != nil {
			return err
		}
	}
	return nil
}

// crowd are clients that stop sending in the middle of a request, or do not read the response.
type crowd struct{ silent, deaf []net.Conn }

// slowCrowd starts clients that stop in the middle of a request or of a TLS handshake.
func slowCrowd(t *testing.T, y *yard) *crowd {
	t.Helper()
	directory := t.TempDir()
	pair := certtest.New(t).Issue(t, "localhost")
	write(t, filepath.Join(directory, "crt"), string(pair.Cert))
	write(t, filepath.Join(directory, "key"), string(pair.Key))
	_, secure := startGatewayOn(t, fmt.Sprintf("{address: '127.0.0.1:0', tls: {cert_file: %q, key_file: %q}}", filepath.Join(directory, "crt"), filepath.Join(directory, "key")), fmt.Sprintf(`
  upstreams: {app: {servers: 'http://%s', timeouts: {idle: 2s}}}
  routes: [{upstream: app, max_body_size: off}]`, y.app.address), "rules: []", "")
	c := new(crowd)
	for i := range times(3000) {
		conn := raw(t, y.address)
		_, _ = io.WriteString(conn, attacks.Beginnings[i%5])
		c.silent = append(c.silent, conn)
	}
	for i := range times(1000) {
		conn := raw(t, secure)
		_, _ = io.WriteString(conn, []string{"", attacks.Beginnings[6], attacks.Beginnings[7]}[i%3])
		c.silent = append(c.silent, conn)
	}
	for i := range times(400) { // incomplete bodies, and responses that are not read
		conn, err := tls.Dial("tcp", secure, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // the client is an attacker
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_, _ = io.WriteString(conn, append(attacks.SlowBodies[:3:3], "GET /large HTTP/1.1\r\nHost: a\r\n\r\n")[i%4])
		if i%4 == 3 {
			c.deaf = append(c.deaf, conn)
		} else {
			c.silent = append(c.silent, conn)
		}
	}
	return c
}

// reaped waits until the gateway has closed all these connections, which it does by its timeouts.
func (c *crowd) reaped(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(time.Minute) // far more than the timeouts
	for _, conn := range c.silent {
		_ = conn.SetReadDeadline(deadline)
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the connection of a silent client is not closed")
		}
	}
	for _, conn := range c.deaf { // their timeouts have passed by now
		_ = conn.SetReadDeadline(deadline)
		if n, err := io.Copy(io.Discard, conn); n >= largeAnswer || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a client that does not read was sent %d bytes, %v", n, err)
		}
	}
}
