package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// gatewayTest starts a handler of the scenario in this process.
func gatewayTest(t *testing.T, kind, origin string) string {
	t.Helper()
	p := &proxyJob{Kind: kind, Origin: origin}
	h, err := p.handler()
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// TestGatewayLoops checks that both proxies forward everything, and that the upstream server counts it.
func TestGatewayLoops(t *testing.T) {
	origin := gatewayTest(t, "origin", "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sent := 0
	for _, kind := range []string{"bare", "forward"} {
		addr := gatewayTest(t, kind, "http://"+origin)
		for i := range gatewayLoads[:2] {
			c, err := dialProxy(ctx, addr, &gatewayLoads[i])
			if err != nil {
				t.Fatal(err)
			}
			if err := c.first(ctx, false); err != nil {
				t.Error(err)
			}
			took, err := c.loop(640)
			if err != nil || len(took.waits) != 640 {
				t.Errorf("%s: %v", kind, err)
			}
			c.close()
			sent += 641
		}
	}
	if n, err := countOf(origin); n != sent || err != nil {
		t.Errorf("%d of %d requests arrived: %v", n, sent, err)
	}
}

// TestGatewayChecks checks that servers that do not behave as the scenario requires are rejected.
func TestGatewayChecks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	refuses := gatewayTest(t, "429", "")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("another body"))
	}))
	defer other.Close()
	for _, c := range []struct {
		addr, want string
		load       int
		limits     bool
	}{
		{refuses, "response to request 1: HTTP/1.1 429", 0, false},
		{refuses, "denies the first", 2, true},
		{other.Listener.Addr().String(), "HTTP/1.1 200", 2, true},
	} {
		px, err := dialProxy(ctx, c.addr, &gatewayLoads[c.load])
		if err != nil {
			t.Fatal(err)
		}
		if err := px.first(ctx, c.limits); !errors.Is(err, errCheck) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
		px.close()
	}
	px, err := dialProxy(ctx, other.Listener.Addr().String(), &gatewayLoads[0])
	if err != nil {
		t.Fatal(err)
	}
	defer px.close()
	if _, err := px.loop(64); !errors.Is(err, errCheck) {
		t.Errorf("another body was accepted: %v", err)
	}
}

func TestExchangeOne(t *testing.T) {
	for text, fine := range map[string]bool{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok":    true,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok..":  false, // unexpected data after the response
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nok":    false,
		"HTTP/1.1 200 OK\r\n\r\nok":                         false,
		"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nok": false,
	} {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Read(make([]byte, 100))
			for _, part := range []string{text[:20], text[20:]} {
				_, _ = theirs.Write([]byte(part))
			}
			theirs.Close()
		}()
		_, body, err := exchangeOne(ours, []byte("GET"), make([]byte, 1000))
		if (err == nil) != fine || fine && string(body) != "ok" {
			t.Errorf("%q: %q %v", text, body, err)
		}
		ours.Close()
	}
}
