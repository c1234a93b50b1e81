package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/internal/match"
)

// headers is an upstream that responds with the headers of the request.
var headers = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	all := maps.Clone(r.Header)
	all["Host"] = []string{r.Host}
	_ = json.NewEncoder(w).Encode(all)
})

const believed = "client_ip: {trusted_proxies: [127.0.0.1]}\nrules: []"

// arrives sends headers through a gateway and returns the header lines that its upstream received.
func arrives(t *testing.T, address string, lines ...string) []string {
	t.Helper()
	a := get(t, address, "/", lines...)
	var got http.Header
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		t.Fatalf("%+v: %v", a, err)
	}
	id := got["X-Request-Id"]
	if len(id) != 1 || !slices.Equal(id, a.header["X-Request-Id"]) {
		t.Errorf("ID %q at the upstream and %q at the client", id, a.header["X-Request-Id"])
	}
	if !slices.Contains(lines, "X-Request-Id: "+id[0]) {
		delete(got, "X-Request-Id")
	}
	delete(got, "Accept-Encoding")
	var all []string
	for name, values := range got {
		for _, v := range values {
			all = append(all, name+": "+v)
		}
	}
	slices.Sort(all)
	return all
}

// Spoofable and hop-by-hop headers of a client do not reach the upstream; all others do.
func TestHeaders(t *testing.T) {
	usual := []string{"Host: example.com", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: http"}
	for name, tt := range map[string]struct{ trusted, sent, want []string }{
		"nothing": {},
		"all else": {
			sent: []string{"Accept: a", "Accept: b", "X-User: ada", "Cookie: a=b", "Authorization: Basic x", "Origin: x", "Priority: u=1"},
			want: []string{"Accept: a", "Accept: b", "X-User: ada", "Cookie: a=b", "Authorization: Basic x", "Origin: x", "Priority: u=1"},
		},
		"between neighbours": {sent: []string{
			"Keep-Alive: 5", "Proxy-Connection: keep-alive", "Proxy-Authorization: Basic x", "Te: gzip", "Proxy-Authenticate: x",
			"Connection: X-Hop, x-hop-2", "X-Hop: a", "X-Hop-2: b", "Http2-Settings: x",
		}},
		"trailers": {sent: []string{"Te: gzip, trailers"}, want: []string{"Te: trailers"}},
		"forged address": {sent: []string{
			"X-Forwarded-For: 192.0.2.1", "X-Forwarded-Host: evil", "X-Forwarded-Proto: https", "X-Forwarded-Port: 1", "X-Forwarded-Prefix: /x",
			"x-forwarded-anything: x", "Forwarded: for=192.0.2.1", "X-Real-Ip: 192.0.2.1", "True-Client-Ip: 192.0.2.1", "X-Client-Ip: 1",
		}},
		"forged path":                     {sent: []string{"X-Original-Url: /admin", "X-Rewrite-Url: /admin", "X-Original-Uri: /x", "X-Original-Host: y"}},
		"protected headers in Connection": {sent: []string{"Connection: X-Forwarded-For, X-Forwarded-Proto, Host, Content-Length"}},
		"underscores":                     {sent: []string{"X_User: a", "X-Forwarded_For: b", "_: c", "Content_Length: 5"}},
		"ID of the client":                {sent: []string{"X-Request-Id: mine"}},
		"upgrades to HTTP/2": {
			sent: []string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"},
		},
		"a trusted proxy": {
			sent: []string{
				"X-Forwarded-For: 192.0.2.1, 192.0.2.2", "X-Forwarded-For: 192.0.2.3", "X-Forwarded-Host: public", "X-Forwarded-Proto: https",
				"X-Forwarded-Prefix: /x", "X-Real-Ip: 192.0.2.1", "Forwarded: for=192.0.2.1", "X-Request-Id: of-the.proxy_1", "X_User: a",
			},
			trusted: []string{
				"X-Forwarded-For: 192.0.2.1, 192.0.2.2, 192.0.2.3, 127.0.0.1", "X-Forwarded-Host: public", "X-Forwarded-Proto: https",
				"X-Forwarded-Prefix: /x", "X-Real-Ip: 192.0.2.1", "Forwarded: for=192.0.2.1, for=127.0.0.1;proto=http",
				"X-Request-Id: of-the.proxy_1", "Host: example.com",
			},
		},
		"invalid ID": {
			sent:    []string{"X-Request-Id: <script>"},
			trusted: usual,
		},
	} {
		t.Run(name, func(t *testing.T) {
			address := before(t, headers, func(c *gateway.Config) {
				if tt.trusted != nil {
					c.Rules, c.Limiter = limits(t, believed)
				}
			})
			want := tt.trusted
			if want == nil {
				want = append(append(want, usual...), tt.want...)
			}
			slices.Sort(want)
			if got := arrives(t, address, tt.sent...); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// The client_ip header of the rules is removed from requests of untrusted peers.
func TestOwnAddressHeader(t *testing.T) {
	address := before(t, headers, func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, "client_ip: {trusted_proxies: [192.0.2.1], header: Cf-Connecting-Ip}\nrules: []")
	})
	for _, line := range arrives(t, address, "CF-Connecting-IP: 192.0.2.9") {
		if strings.HasPrefix(line, "Cf-") {
			t.Errorf("%s arrives", line)
		}
	}
}

// The upstream receives the host of the client, or its own.
func TestSentHost(t *testing.T) {
	for own, want := range map[bool]string{false: "Host: example.com", true: "Host: 127.0.0.1:"} {
		address := before(t, headers, func(c *gateway.Config) { c.Routes[0].UpstreamHost = own })
		got := arrives(t, address)
		if !strings.HasPrefix(got[0], want) || !slices.Contains(got, "X-Forwarded-Host: example.com") {
			t.Errorf("own is %v: %q", own, got)
		}
	}
}

// Methods, hosts and targets that servers parse differently are rejected.
func TestOddRequests(t *testing.T) {
	address := before(t, echo, nil)
	send := func(first, host string, lines ...string) answer {
		return raw(t, address, first+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n"+strings.Join(append(lines, "", ""), "\r\n"))
	}
	for _, host := range []string{
		"a b", "a/b", "a@b", "a,b", "a:b", "a:", "a:123456", "a:80:80", "[::1", "[::1]x", "[g]", "a..b", ".a", "..", ".", "a?b", "a#b", "a%20b",
		"[::1%25eth0]", "é", "a\\b", "a\"", "{a}", strings.Repeat("a", 300),
	} {
		if a := send("GET /", host); a.status != 400 {
			t.Errorf("host %q: %+v", host, a)
		}
	}
	for _, host := range []string{"a", "a.", "a:80", "a_b.example", "[::1]", "[::1]:80", "192.0.2.1:8080", "A.Example.COM", "xn--bcher-kva.example"} {
		if a := send("GET /", host); a.status != 200 || a.body != "GET "+host+" / " {
			t.Errorf("host %q: %+v", host, a)
		}
	}
	for first, status := range map[string]int{
		"get /": 400, "Get /": 400, "G3T /": 400, "PROPFIND /": 200, "VERSION-CONTROL /": 200, "TRACE /": 405, "CONNECT example.com:443": 405, "CONNECT /": 405,
		"GET /#": 400, "GET /?#": 400, "GET /?a#b": 400, "GET http://a@example.com/": 400, "GET https://example.com/": 400, "GET ftp://example.com/": 400,
		"GET http://example.com/x": 200, "GET http://other.example/x": 200, "GET /?" + strings.Repeat("&", 999): 200, "GET /?" + strings.Repeat("&", 1000): 400,
	} {
		a := send(first, "example.com")
		if a.status != status {
			t.Errorf("%.40s: %+v", first, a)
		} else if status != 200 {
			a.isProblem(t, status)
		}
	}
	if a := send("GET http://other.example/x", "example.com"); a.body != "GET other.example /x " {
		t.Errorf("the absolute form: %+v", a)
	}
	for name, lines := range map[string][]string{
		"two lengths":      {"Content-Length: 5", "Content-Length: 6"},
		"an odd length":    {"Content-Length: +5"},
		"a list":           {"Content-Length: 5, 6"},
		"another encoding": {"Transfer-Encoding: gzip, chunked"},
		"twice chunked":    {"Transfer-Encoding: chunked", "Transfer-Encoding: chunked"},
		"a space":          {"Content-Length : 5"},
		"two hosts":        {"Host: b"},
		"a bare CR":        {"X-A: b\rContent-Length: 5"},
	} {
		if a := send("POST /", "example.com", lines...); a.status < 400 || a.status > 501 {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// A request with an ambiguous length has the length that net/http reads, also at the upstream, because the gateway writes its
// own framing. The following bytes are a separate request, which is limited like any other.
func TestSmuggling(t *testing.T) {
	address := before(t, echo, func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, "rules: [{name: r, match: {path: /smuggled}, limit: {rate: 0/h, algorithm: fixed_window}}]")
	})
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
	if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n%s",
		15+len(smuggled), smuggled); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	if got := string(all); err != nil || strings.Count(got, "HTTP/1.1 ") > 2 || !strings.Contains(got, "POST a / hello") || strings.Contains(got, "GET a /smuggled") {
		t.Errorf("got %s, %v", got, err)
	}
}

// The allow and deny lists use the client's address as found by the rules.
func TestAddresses(t *testing.T) {
	set := func(texts ...string) match.AddrSet {
		var all []netip.Prefix
		for _, text := range texts {
			p, err := match.ParsePrefix(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
		return match.NewAddrSet(all)
	}
	for name, tt := range map[string]struct {
		allow, deny match.AddrSet
		rules       string
		from        string
		want        int
	}{
		"no lists":           {want: 200},
		"denied":             {deny: set("127.0.0.0/8"), want: 403},
		"another is denied":  {deny: set("192.0.2.1", "::1"), want: 200},
		"allowed":            {allow: set("127.0.0.1", "192.0.2.0/24"), want: 200},
		"another is allowed": {allow: set("192.0.2.0/24"), want: 403},
		"both":               {allow: set("127.0.0.0/8"), deny: set("127.0.0.1"), want: 403},
		"a client's word":    {allow: set("192.0.2.1"), from: "192.0.2.1", want: 403},
		"a proxy's word":     {allow: set("192.0.2.1"), rules: believed, from: "192.0.2.1", want: 200},
		"behind a proxy":     {deny: set("192.0.2.1"), rules: believed, from: "192.0.2.1", want: 403},
		"a mapped address":   {deny: set("192.0.2.1"), rules: believed, from: "::ffff:192.0.2.1", want: 403},
		"IPv6":               {deny: set("2001:db8::/32"), rules: believed, from: "2001:db8::1", want: 403},
	} {
		t.Run(name, func(t *testing.T) {
			address := before(t, echo, func(c *gateway.Config) {
				c.Allow, c.Deny = tt.allow, tt.deny
				if tt.rules != "" {
					c.Rules, c.Limiter = limits(t, tt.rules)
				}
			})
			a := get(t, address, "/", "X-Forwarded-For: "+tt.from)
			if a.status != tt.want {
				t.Errorf("%+v", a)
			}
			if tt.want == 403 {
				a.isProblem(t, 403)
			}
		})
	}
}
