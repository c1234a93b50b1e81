package main

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
)

// Forwarding headers of clients have no effect: requests are counted by the peer's address, and the upstream gets only that one.
func spoofing(t *testing.T, y *yard) {
	const ask = "GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n"
	for range 5 {
		if got := y.sayFrom(t, "127.0.0.2", fmt.Sprintf(ask, "/address", "X: y")); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Fatalf("got %s", got)
		}
	}
	y.app.taken()
	for _, lie := range attacks.AddressLies {
		got := y.sayFrom(t, "127.0.0.2", fmt.Sprintf(ask, "/address", lie))
		if seen, odd := y.app.taken(); len(seen)+len(odd) > 0 || !strings.HasPrefix(got, "HTTP/1.1 429 ") && !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%.80q: %.200q, and the upstream got %q", lie, got, seen)
		}
		got = y.sayFrom(t, "127.0.0.3", fmt.Sprintf(ask, "/free", lie))
		seen, odd := y.app.taken()
		if len(odd) > 0 || len(seen) == 0 && !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%.80q: %.200q, and the upstream got %q %q", lie, got, seen, odd)
		}
		for _, s := range seen {
			if strings.Contains(s, "192.0.2.") || strings.Count(s, "\r\nX-Forwarded-For: 127.0.0.3\r\n") != 1 || strings.Count(strings.ToLower(s), "forwarded-for") != 1 {
				t.Errorf("%.80q: the upstream got %q", lie, s)
			}
		}
	}
	y.counted(t)
	y.app.taken()
}

// keyTricks sends many spellings of a header after its limit is used up. No request with this key reaches the upstream.
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
	for _, fields := range attacks.KeySpellings {
		_, seen := ask(fields)
		for _, s := range seen {
			for line := range strings.Lines(s) {
				name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
				if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), "X-Api-Key") && strings.TrimSpace(value) == "spent" {
					t.Errorf("%q: the upstream got %q", fields, s)
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

// pairTricks sends many spellings of a cookie and a parameter after their limits are used up. None reaches the upstream. Before,
// the spellings of browsers do.
func pairTricks(t *testing.T, y *yard) {
	ask := func(query, fields string) (status string, seen []string) {
		t.Helper()
		got := y.say(t, "GET "+query+" HTTP/1.1\r\nHost: a\r\n"+fields+"\r\n\r\n")
		seen, odd := y.app.taken()
		if len(odd) > 0 {
			t.Errorf("%q %q: %q", query, fields, odd)
		}
		return got[:min(12, len(got))], seen
	}
	for range 3 {
		for query, fields := range map[string]string{"/session": "Cookie: sess=spent", "/user?user_id=spent": "X: y"} {
			if got, _ := ask(query, fields); got != "HTTP/1.1 200" {
				t.Fatalf("%s: %s", query, got)
			}
		}
	}
	for _, fields := range attacks.CookieSpellings {
		if got, seen := ask("/session", fields); got != "HTTP/1.1 429" && got != "HTTP/1.1 400" || len(seen) > 0 {
			t.Errorf("%q: %s, the upstream got %q", fields, got, seen)
		}
	}
	for _, query := range attacks.QuerySpellings {
		if got, seen := ask("/user?"+query, "X: y"); got != "HTTP/1.1 429" && got != "HTTP/1.1 400" || len(seen) > 0 {
			t.Errorf("%q: %s, the upstream got %q", query, got, seen)
		}
	}
	for i, value := range []string{"eyJhIjoxfQ==", "a+b/c=", "%7B%22a%22%3A%5B1%2C2%5D%7D", "s%3Aabc.d%2Be", "a%20b", "caf%C3%A9", "", "x-_.~!*'()"} {
		fields := "Cookie: theme=dark; prefs=a%20b; note=100%; sess=" + value
		if got, seen := ask(fmt.Sprintf("/session?%d", i), fields); got != "HTTP/1.1 200" || len(seen) != 1 || !strings.Contains(seen[0], "; sess="+value+"\r\n") {
			t.Errorf("%q: %s, the upstream got %q", fields, got, seen)
		}
	}
	for _, query := range []string{"user_id=a+b", "user_id=%C3%A9&user=7&user-id=8", "filter[user_id]=7&user_id=9", "user_id="} {
		if got, _ := ask("/user?"+query, "X: y"); got != "HTTP/1.1 200" {
			t.Errorf("%q: %s", query, got)
		}
	}
	y.counted(t)
	y.app.taken()
}

// otherTargets sends requests that name another server, which listens here and gets no connection.
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
	for _, text := range attacks.OtherTargets(l.Addr().String()) {
		got := y.say(t, text)
		seen, odd := y.app.taken()
		if len(seen) > 1 || len(odd) > 0 || len(seen) == 0 && got != "" && !strings.HasPrefix(got, "HTTP/1.1 4") {
			t.Errorf("%q: %.200q, and the upstream got %q %q", text, got, seen, odd)
		}
	}
	if n := heard.Load(); n > 0 {
		t.Errorf("the other server got %d connections", n)
	}
	y.counted(t)
	y.app.taken()
}

// tooLarge sends requests at and above the size limits: only those above are rejected.
func tooLarge(t *testing.T, y *yard) {
	for _, c := range attacks.SizedRequests() {
		got := y.say(t, c.Text)
		status := strings.TrimPrefix(strings.TrimPrefix(got[:min(12, len(got))], "HTTP/1.1 "), "HTTP/1.0 ")
		if status != "" && !strings.Contains(c.Status, status) || status == "" && strings.HasPrefix(c.Status, "200") {
			t.Errorf("%s: %.300q, want %s", c.Name, got, c.Status)
		}
		y.app.taken()
	}
	y.counted(t)
	y.app.taken()
}
