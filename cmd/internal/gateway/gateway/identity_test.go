package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
)

// attacks returns the lines of a file of testdata/attacks.
func attacks(t testing.TB, file string) (lines []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "attacks", file))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// connections returns Connection headers that list a name, in different forms.
func connections(name string) [][]string {
	return [][]string{
		{"Connection: " + name},
		{"Connection: close, " + strings.ToLower(name)},
		{"connection:\t" + strings.ToUpper(name) + "\t,,"},
		{"Connection: x", "Connection: " + name + ", " + name},
		{"Connection: Upgrade, " + name, "Upgrade: websocket"},
	}
}

// Headers that identify a request are read as received, whatever its Connection header lists, and forwarded to the upstream.
func TestConnectionHidesNoIdentity(t *testing.T) {
	for _, line := range attacks(t, "connection.txt") {
		name, value, _ := strings.Cut(line, ": ")
		deny := fmt.Sprintf("deny: [{header: {%s: %q}}]\nrules: []", name, value)
		switch {
		case name == "Cookie":
			deny = "deny: [{cookie: {session: mallory}}]\nrules: []"
		case name == "Authorization":
			deny = "attributes: {who: basic_user}\ndeny: [{who: mallory}]\nrules: []"
		case strings.Contains(value, "192.0.2.66"):
			deny = "client_ip: {trusted_proxies: [127.0.0.1], header: " + name + "}\ndeny: [{ip: 192.0.2.66}]\nrules: []"
		}
		address := before(t, headers, func(c *gateway.Config) { c.Rules, c.Limiter = limits(t, deny) })
		if a := get(t, address, "/", name+": x", "Connection: "+name); a.status != http.StatusOK {
			t.Errorf("%s: another value is denied too: %+v", name, a)
		} else if name != "Cookie" && !strings.Contains(a.body, `"`+name+`"`) {
			t.Errorf("%s was read and is not forwarded: %s", name, a.body)
		}
		for _, lines := range connections(name) {
			text := "GET / HTTP/1.1\r\nHost: example.com\r\n" + strings.Join(append(lines, line, "", ""), "\r\n")
			if a := raw(t, address, text); a.status != http.StatusForbidden {
				t.Errorf("%q with %q: %+v", line, lines, a)
			}
		}
	}
}

// A rule per header counts requests whose Connection lists the header, also when they are delivered from the queue.
func TestConnectionHidesNoKey(t *testing.T) {
	const text = "rules: [{name: users, per: header:X-User, on_missing: skip, limit: 1/h}]"
	address := before(t, headers, func(c *gateway.Config) { c.Rules, c.Limiter = limits(t, text) })
	for i, want := range []int{200, 429, 429} {
		if a := get(t, address, "/", "X-User: ada", "Connection: X-User"); a.status != want {
			t.Errorf("request %d: %+v", i, a)
		}
	}
	cfg := gateway.Config{Routes: []gateway.Route{{Path: pattern(t, "/**"), Upstream: group(t, "http://"+address)}}}
	cfg.Rules, cfg.Limiter = limits(t, text)
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i, limited := range []bool{false, true} {
		out := g.Deliver(context.Background(), &queue.Item{
			Method: "GET", Scheme: "http", Host: "a", Target: "/", RemoteAddr: "192.0.2.1:5",
			Header: http.Header{"X-User": {"bob"}, "Connection": {"X-User"}},
		}, func() error { return nil })
		if out.Limited != limited || out.Err != nil {
			t.Errorf("delivery %d: %+v", i, out)
		}
	}
}

// Credentials are read whatever Connection lists, and the identity headers reach the upstream.
func TestConnectionHidesNoCredentials(t *testing.T) {
	key, hash := authn.NewKey()
	file := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(file, []byte("keys: [{user: ada, plan: gold, hash: \""+hash+"\"}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := authn.NewKeys(authn.KeysConfig{Files: []string{file}, Header: "X-My-Key"})
	if err != nil {
		t.Fatal(err)
	}
	told, err := authn.NewHeaders(map[string]string{"X-User": "user", "X-Plan-Name": "plan"})
	if err != nil {
		t.Fatal(err)
	}
	chain := authn.NewChain(authn.ChainConfig{Methods: []authn.Method{keys}, Optional: true, Headers: told})
	address := before(t, headers, func(c *gateway.Config) { c.Routes[0].Authn = chain })
	for _, named := range []string{"X-My-Key", "X-User", "X-My-Key, X-User, X-Plan-Name"} {
		got := arrives(t, address, "X-My-Key: "+key, "X-User: mallory", "X-Hop: x", "X.User: mallory", "X-Plan.Name: free", "Connection: X-Hop, "+named)
		want := []string{"X-Plan-Name: gold", "X-User: ada"}
		if got := slices.DeleteFunc(got, func(l string) bool {
			return !strings.Contains(l, "User") && !strings.Contains(l, "Plan") && !strings.Contains(l, "Hop")
		}); !slices.Equal(got, want) {
			t.Errorf("Connection: %s: the upstream gets %q, want %q", named, got, want)
		}
	}
}

// Headers with ambiguous names, and forwarding headers of clients, do not reach the upstream.
func TestHeadersThatSpeakForOthers(t *testing.T) {
	address := before(t, headers, nil)
	lines := attacks(t, "headers.txt")
	want := []string{"Host: example.com", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: http"}
	if got := arrives(t, address, lines...); !slices.Equal(got, want) {
		t.Errorf("%d were sent, got %q", len(lines), got)
	}
}

// No trailer reaches the upstream, over HTTP/1 or HTTP/2, announced or not.
func TestTrailersAreDropped(t *testing.T) {
	arrived := make(chan http.Header, 1)
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- r.Trailer
	})
	address := before(t, app, nil)
	var clients http.Protocols
	clients.SetUnencryptedHTTP2(true)
	h2 := &http.Transport{Protocols: &clients}
	defer h2.CloseIdleConnections()
	all := http.Header{}
	for _, line := range attacks(t, "trailers.txt") {
		name, value, _ := strings.Cut(line, ": ")
		if httpguts.ValidTrailerHeader(http.CanonicalHeaderKey(name)) { // for others the HTTP/2 server resets the stream
			all[http.CanonicalHeaderKey(name)] = []string{value}
		}
		for _, announced := range []string{"", "Trailer: " + name + "\r\n"} {
			for _, body := range []string{"1\r\nx\r\n", ""} {
				a := raw(t, address, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n"+announced+"\r\n"+body+"0\r\n"+line+"\r\n\r\n")
				if got := <-arrived; a.status != http.StatusOK || len(got) > 0 {
					t.Errorf("%q after %q, announced with %q: %d, the upstream got %q", line, body, announced, a.status, got)
				}
			}
		}
	}
	r, err := http.NewRequest("POST", "http://"+address, io.MultiReader(bytes.NewReader([]byte("hello")))) // of unknown length
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("TE", "trailers")
	r.Trailer = maps.Clone(all)
	resp, err := h2.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := <-arrived; len(all) < 10 || resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK || len(got) > 0 {
		t.Errorf("over %s: %d, the upstream got %q", resp.Proto, resp.StatusCode, got)
	}
}

// A request on the deny list is rejected in every spelling: none reaches the upstream.
func TestSpellingsEvadeNoDenial(t *testing.T) {
	address := before(t, headers, func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, "deny: [{path: /admin/**}, {query: {role: admin}}, {cookie: {role: admin}}]\nrules: []")
	})
	for _, path := range append(attacks(t, "paths.txt"), "/admin", "/admin/users") {
		if a := get(t, address, path); a.status != http.StatusBadRequest && a.status != http.StatusForbidden {
			t.Errorf("%s: %+v", path, a)
		}
	}
	want := func(found string) int {
		switch found {
		case "doubt":
			return http.StatusBadRequest
		case "=admin":
			return http.StatusForbidden
		}
		return http.StatusOK
	}
	for _, line := range attacks(t, "../../../../../../internal/pairs/testdata/queries.txt") {
		query, found, _ := strings.Cut(line, "\t")
		if a := get(t, address, "/?"+query); a.status != want(found) {
			t.Errorf("query %s: %d, want %d", query, a.status, want(found))
		}
	}
	for _, line := range attacks(t, "../../../../../../internal/pairs/testdata/cookies.txt") {
		cookies, found, _ := strings.Cut(line, "\t")
		var lines []string
		for part := range strings.SplitSeq(cookies, " || ") {
			lines = append(lines, "Cookie: "+part)
		}
		if a := get(t, address, "/", lines...); a.status != want(found) {
			t.Errorf("cookies %s: %d, want %d", cookies, a.status, want(found))
		}
	}
}
