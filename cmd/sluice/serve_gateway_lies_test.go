package main

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// lies are fields by which a client may say that it is somebody else, with an address that it is not.
var lies = []string{
	"X-Forwarded-For: 192.0.2.1", "x-forwarded-for: 192.0.2.1", "X-FORWARDED-FOR: 192.0.2.1", "X-Forwarded-For: 192.0.2.1, 127.0.0.1", "X-Forwarded-For: 127.0.0.1, 192.0.2.1",
	"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2", "X-Forwarded-For:\t192.0.2.1", "X-Forwarded-For: \"192.0.2.1\"", "X-Forwarded-For: 192.0.2.1:80", "X-Forwarded-For: [::ffff:192.0.2.1]:80",
	"X_Forwarded_For: 192.0.2.1", "X-Forwarded_For: 192.0.2.1", "X-Forwarded-For : 192.0.2.1", "HTTP_X_FORWARDED_FOR: 192.0.2.1", "Connection: X-Forwarded-For\r\nX-Forwarded-For: 192.0.2.1",
	"Forwarded: for=192.0.2.1", "Forwarded: for=\"192.0.2.1:80\"", "Forwarded: for=\"[::ffff:192.0.2.1]\"", "Forwarded: for=192.0.2.1, for=127.0.0.1", "forwarded: FOR=192.0.2.1;by=192.0.2.2;host=evil",
	"Forwarded: for=127.0.0.1\r\nForwarded: for=192.0.2.1", "X-Real-IP: 192.0.2.1", "X_Real_IP: 192.0.2.1", "X-Client-IP: 192.0.2.1", "X-Cluster-Client-IP: 192.0.2.1", "True-Client-IP: 192.0.2.1",
	"CF-Connecting-IP: 192.0.2.1", "CF-Connecting-IPv6: 2001:db8::192.0.2.1", "Fastly-Client-IP: 192.0.2.1", "Fly-Client-IP: 192.0.2.1", "X-Azure-ClientIP: 192.0.2.1", "X-Azure-SocketIP: 192.0.2.1",
	"X-AppEngine-User-IP: 192.0.2.1", "X-Envoy-External-Address: 192.0.2.1", "X-Originating-IP: 192.0.2.1", "X-Remote-IP: 192.0.2.1", "X-Remote-Addr: 192.0.2.1", "Remote-Addr: 192.0.2.1",
	"X-Forwarded: for=192.0.2.1", "Forwarded-For: 192.0.2.1", "X-ProxyUser-Ip: 192.0.2.1", "WL-Proxy-Client-IP: 192.0.2.1", "Proxy-Client-IP: 192.0.2.1", "Client-IP: 192.0.2.1",
	"X-Forwarded-Host: 192.0.2.1", "X-Forwarded-Proto: 192.0.2.1", "X-Forwarded-Port: 192.0.2.1", "X-Forwarded-Server: 192.0.2.1", "X-Forwarded-Prefix: /192.0.2.1", "X-Forwarded-Uri: /192.0.2.1",
	"X-Original-URL: /192.0.2.1", "X-Original-URI: /192.0.2.1", "X-Rewrite-URL: /192.0.2.1", "X-Original-Host: 192.0.2.1", "X-Host: 192.0.2.1",
	"X-Forwarded-For: 192.0.2.1" + strings.Repeat(", 127.0.0.1", 3000), "Proxy-Connection: X-Forwarded-For\r\nX-Forwarded-For: 192.0.2.1",
}

// Whatever a client says of itself, it is counted by its own address, and the application is told that one alone.
func spoofing(t *testing.T, y *yard) {
	const ask = "GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n"
	for range 5 {
		if got := y.sayFrom(t, "127.0.0.2", fmt.Sprintf(ask, "/address", "X: y")); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Fatalf("got %s", got)
		}
	}
	y.app.taken()
	for _, lie := range lies {
		got := y.sayFrom(t, "127.0.0.2", fmt.Sprintf(ask, "/address", lie))
		if seen, odd := y.app.taken(); len(seen)+len(odd) > 0 || !strings.HasPrefix(got, "HTTP/1.1 429 ") && !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%.80q: %.200q, and the application saw %q", lie, got, seen)
		}
		got = y.sayFrom(t, "127.0.0.3", fmt.Sprintf(ask, "/free", lie))
		seen, odd := y.app.taken()
		if len(odd) > 0 || len(seen) == 0 && !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%.80q: %.200q, and the application saw %q %q", lie, got, seen, odd)
		}
		for _, s := range seen {
			if strings.Contains(s, "192.0.2.") || strings.Count(s, "\r\nX-Forwarded-For: 127.0.0.3\r\n") != 1 || strings.Count(strings.ToLower(s), "forwarded-for") != 1 {
				t.Errorf("%.80q: the application is told %q", lie, s)
			}
		}
	}
	y.counted(t)
	y.app.taken()
}

// keyTricks spell a key in many ways once its limit is used up. What arrives under the name of the key was counted for it.
func keyTricks(t *testing.T, y *yard) {
	ask := func(fields string) (answer string, seen []string) {
		t.Helper()
		answer = y.say(t, "GET /flood HTTP/1.1\r\nHost: a\r\n"+fields+"\r\n\r\n")
		seen, odd := y.app.taken()
		if len(odd) > 0 {
			t.Errorf("%q: %q", fields, odd)
		}
		return answer, seen
	}
	for range 20 {
		if got, _ := ask("X-Api-Key: spent"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Fatalf("got %s", got)
		}
	}
	for _, fields := range []string{
		"X-Api-Key: spent", "x-api-key: spent", "X-API-KEY: spent", "x-ApI-kEy:spent", "X-Api-Key:  spent", "X-Api-Key: spent ", "X-Api-Key:\tspent\t", "X-Api-Key: spent\r\nX-Api-Key: other", "X-Api-Key: other\r\nX-Api-Key: spent",
		"X-Api-Key: spent\r\nX-Api-Key: spent", "X-Api-Key: other\r\nX_Api_Key: spent", "X_Api_Key: spent\r\nX-Api-Key: other2", "X-Api_Key: spent\r\nX-Api-Key: other3", "X-Api-Key: spent\r\nConnection: X-Api-Key",
		"Connection: X-Api-Key\r\nX-Api-Key: spent", "X-Api-Key : spent", " X-Api-Key: spent", "X-Api-Key:\r\n spent", "X-Api-Key: spent\x00", "X-Api-Key: spent, other", "X-Api-Key: \"spent\"", "X-Api-Key: SPENT", "X-Api-Key: sp\xc3\xa9nt",
		"X-Api-Key: spent\x0b", "Connection: close, x-api-key\r\nX-Api-Key: spent", "Proxy-Connection: X-Api-Key\r\nX-Api-Key: spent", "Te: trailers\r\nX-Api-Key: spent", "X-Api-Key;: spent",
	} {
		_, seen := ask(fields)
		for _, s := range seen {
			for line := range strings.Lines(s) {
				name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
				if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), "X-Api-Key") && strings.TrimSpace(value) == "spent" {
					t.Errorf("%q: the application is sent %q", fields, s)
				}
			}
		}
	}
	if got := y.say(t, "POST /look HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("others: %s", got)
	}
	y.counted(t)
	y.app.taken()
}

// otherTargets try to have the gateway talk to somebody else, who listens here and hears nothing.
func otherTargets(t *testing.T, y *yard) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var heard atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			heard.Add(1)
			conn.Close()
		}
	}()
	secret := l.Addr().String()
	_, port, _ := net.SplitHostPort(secret)
	for _, target := range []string{
		"GET / HTTP/1.1\r\nHost: %s", "GET http://%s/ HTTP/1.1\r\nHost: a", "GET http://%s/ HTTP/1.1\r\nHost: %s", "GET https://%s/ HTTP/1.1\r\nHost: %s", "GET //%s/ HTTP/1.1\r\nHost: a", "GET @%s/ HTTP/1.1\r\nHost: a",
		"GET /@%s/ HTTP/1.1\r\nHost: a", "GET http://a@%s/ HTTP/1.1\r\nHost: a", "GET http:%s/ HTTP/1.1\r\nHost: a", "GET / HTTP/1.1\r\nHost: a@%s", "GET / HTTP/1.1\r\nHost: a#@%s", "GET \\\\%s\\ HTTP/1.1\r\nHost: a",
		"CONNECT %s HTTP/1.1\r\nHost: %s", "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Host: %s", "GET / HTTP/1.1\r\nHost: a\r\nX-Host: %s", "GET / HTTP/1.1\r\nHost: a\r\nForwarded: host=\"%s\"", "GET / HTTP/1.1\r\nHost: a\r\nX-Original-URL: http://%s/",
		"GET /http://%s/ HTTP/1.1\r\nHost: a", "GET /?url=http://%s/ HTTP/1.1\r\nHost: a", "GET / HTTP/1.1\r\nHost: [::ffff:127.0.0.1]:" + port, "GET / HTTP/1.1\r\nHost: 2130706433:" + port, "GET / HTTP/1.1\r\nHost: 0x7f.1:" + port,
		"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nOrigin: http://%s", "GET / HTTP/1.1\r\nHost: a\r\nProxy: http://%s", "GET / HTTP/1.1\r\nHost: a\r\nDestination: http://%s/",
	} {
		text := strings.ReplaceAll(target, "%s", secret) + "\r\nConnection: close\r\n\r\n"
		got := y.say(t, text)
		seen, odd := y.app.taken()
		if len(seen) > 1 || len(odd) > 0 || len(seen) == 0 && got != "" && !strings.HasPrefix(got, "HTTP/1.1 4") {
			t.Errorf("%q: %.200q, and the application saw %q %q", text, got, seen, odd)
		}
	}
	if n := heard.Load(); n > 0 {
		t.Errorf("somebody else was asked %d times", n)
	}
	y.counted(t)
	y.app.taken()
}

// tooLarge is refused, and only that; what is as large as may be is served.
func tooLarge(t *testing.T, y *yard) {
	x := func(n int) string { return strings.Repeat("x", n) }
	chunks := func(n int) string { return strings.Repeat("400\r\n"+x(1024)+"\r\n", n) + "0\r\n\r\n" }
	const get, post = "GET /big%s HTTP/1.1\r\nHost: a\r\n%s\r\n", "POST /big HTTP/1.1\r\nHost: a\r\n%s\r\n%s"
	for _, c := range []struct {
		name, text string
		status     string // one of these, or the connection is closed
	}{
		{"URL", fmt.Sprintf(get, "/"+x(3000), ""), "200"},
		{"URL too long", fmt.Sprintf(get, "/"+x(30_000), ""), "400"},
		{"URL longer still", fmt.Sprintf(get, "/"+x(200_000), ""), "431 414 400"},
		{"URL without end", "GET /" + x(2<<20), "431 414 400"},
		{"segments", fmt.Sprintf(get, strings.Repeat("/x", 10_000), ""), "200 400"},
		{"query", fmt.Sprintf(get, "?"+strings.Repeat("a=b&", 900)+"a", ""), "200"},
		{"query of too many", fmt.Sprintf(get, "?"+strings.Repeat("a&", 5000), ""), "400"},
		{"query too long", fmt.Sprintf(get, "?"+x(200_000), ""), "431 414 400"},
		{"header", fmt.Sprintf(get, "", "X-Large: "+x(30_000)+"\r\n"), "200"},
		{"header too long", fmt.Sprintf(get, "", "X-Large: "+x(200_000)+"\r\n"), "431"},
		{"headers", fmt.Sprintf(get, "", strings.Repeat("X-Many: x\r\n", 1000)), "200 431"},
		{"headers too many", fmt.Sprintf(get, "", strings.Repeat("X-Many: x\r\n", 100_000)), "431"},
		{"names too many", fmt.Sprintf(get, "", func() (s string) {
			for i := range 20_000 {
				s += fmt.Sprintf("X-%d: x\r\n", i)
			}
			return s
		}()), "431"},
		{"cookies", fmt.Sprintf(get, "", "Cookie: "+strings.Repeat("a=b; ", 5000)+"c=d\r\n"), "200"},
		{"cookies too long", fmt.Sprintf(get, "", "Cookie: "+strings.Repeat("a=b; ", 50_000)+"c=d\r\n"), "431"},
		{"key too long", fmt.Sprintf("GET /flood HTTP/1.1\r\nHost: a\r\nX-Api-Key: %s\r\n\r\n", x(20_000)), "400 431"},
		{"host too long", "GET /big HTTP/1.1\r\nHost: " + x(2000) + "\r\n\r\n", "400"},
		{"method too long", x(2000) + " /big HTTP/1.1\r\nHost: a\r\n\r\n", "400 405 501"},
		{"body", fmt.Sprintf(post, fmt.Sprintf("Content-Length: %d\r\n", 100<<10), x(100<<10)), "200"},
		{"body too large", fmt.Sprintf(post, fmt.Sprintf("Content-Length: %d\r\n", 100<<10+1), x(100<<10+1)), "413"},
		{"body of 2^62", fmt.Sprintf(post, "Content-Length: 4611686018427387904\r\n", x(1000)), "413"},
		{"chunks", fmt.Sprintf(post, "Transfer-Encoding: chunked\r\n", chunks(100)), "200"},
		{"chunks too many", fmt.Sprintf(post, "Transfer-Encoding: chunked\r\n", chunks(101)), "413"},
		{"a giant chunk", fmt.Sprintf(post, "Transfer-Encoding: chunked\r\n", "30d40\r\n"+x(200_000)+"\r\n0\r\n\r\n"), "413"},
		{"trailers too long", fmt.Sprintf(post, "Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\n"+strings.Repeat("X-T: "+x(1000)+"\r\n", 2000)+"\r\n"), "400 413 431"},
		{"small chunks", fmt.Sprintf(post, "Transfer-Encoding: chunked\r\n", strings.Repeat("1\r\nx\r\n", 50_000)+"0\r\n\r\n"), "200 400 413"},
	} {
		got := y.say(t, c.text)
		status := strings.TrimPrefix(strings.TrimPrefix(got[:min(12, len(got))], "HTTP/1.1 "), "HTTP/1.0 ")
		if status != "" && !strings.Contains(c.status, status) || status == "" && strings.HasPrefix(c.status, "200") {
			t.Errorf("%s: %.300q, want %s", c.name, got, c.status)
		}
		y.app.taken()
	}
	y.counted(t)
	y.app.taken()
}
