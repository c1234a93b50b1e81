package gateway_test

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/internal/bounds"
)

// Behind a trusted proxy the requests in flight of one client are bounded, whatever address of its network it uses. Other
// clients of the same proxy, and the proxy itself, are not affected.
func TestRequestsPerAddress(t *testing.T) {
	const share = 3
	ends, came := make(chan struct{}), make(chan struct{}, 100)
	address := before(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			came <- struct{}{}
			<-ends
		}
	}), func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, "client_ip: {trusted_proxies: [127.0.0.1]}\nrules: []")
		c.MaxAddressRequests = share
	})
	was := bounds.RequestsPerAddress.Count()
	of := func(client string) string { return "X-Forwarded-For: " + client }
	for i := range share {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /wait HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", of(fmt.Sprintf("2001:db8::%d", i)))
		<-came
	}
	a := get(t, address, "/", of("2001:db8::ffff"))
	a.isProblem(t, http.StatusTooManyRequests)
	if a.header.Get("Retry-After") != "1" {
		t.Errorf("%+v", a)
	}
	if n := bounds.RequestsPerAddress.Count() - was; n != 1 {
		t.Errorf("the bound was reached %d times", n)
	}
	for _, client := range []string{"2001:db8:0:1::1", "192.0.2.1", "192.0.2.1"} {
		if a := get(t, address, "/", of(client)); a.status != http.StatusOK {
			t.Errorf("%s: %+v", client, a)
		}
	}
	for range 2 * share { // without a header: the proxy's own
		if a := get(t, address, "/"); a.status != http.StatusOK {
			t.Errorf("%+v", a)
		}
	}
	close(ends)
	for get(t, address, "/", of("2001:db8::ffff")).status != http.StatusOK {
		if t.Context().Err() != nil {
			t.Fatal("still rejected")
		}
		<-time.After(time.Millisecond)
	}
}

// Requests above the maximum are rejected at once, and those in flight are not affected.
func TestMaxRequests(t *testing.T) {
	ends, came := make(chan struct{}), make(chan struct{})
	address := before(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		<-ends
	}), func(c *gateway.Config) { c.MaxRequests = 2 })
	was := bounds.Requests.Count()
	served := make(chan answer, 2)
	for range cap(served) {
		go func() { served <- get(t, address, "/") }()
		<-came
	}
	a := get(t, address, "/")
	a.isProblem(t, http.StatusServiceUnavailable)
	if n := bounds.Requests.Count() - was; n != 1 || a.header.Get("Retry-After") != "1" {
		t.Errorf("reached %d times, %+v", n, a)
	}
	close(ends)
	for range cap(served) {
		if a := <-served; a.status != http.StatusOK {
			t.Errorf("%+v", a)
		}
	}
}
