package attacks

import (
	"fmt"
	"strings"
)

// Inner is a request that is hidden in the body of another request. Its path is /smuggled.
const Inner = "GET /smuggled HTTP/1.1\r\nHost: a\r\nX-Api-Key: other\r\n\r\n"

// Smuggled returns requests, by name, that two servers may parse differently. Each may be one request for /outer, or
// none, and never Inner. Those whose names start with "half" are incomplete; see SayHalf.
func Smuggled() map[string]string {
	post := func(fields, body string) string {
		return "POST /outer HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n" + body
	}
	both := fmt.Sprintf("Content-Length: %d\r\n", len("0\r\n\r\n"+Inner))
	chunked := "0\r\n\r\n" + Inner
	all := map[string]string{
		"CL.TE":                     post(both+"Transfer-Encoding: chunked\r\n", chunked),
		"TE.CL":                     post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(Inner), Inner)),
		"two lengths":               post(fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n", len(Inner)), Inner),
		"two lengths, other order":  post(fmt.Sprintf("Content-Length: %d\r\nContent-Length: 0\r\n", len(Inner)), Inner),
		"two lengths in a line":     post(fmt.Sprintf("Content-Length: 0, %d\r\n", len(Inner)), Inner),
		"length with space":         post(fmt.Sprintf("Content-Length : %d\r\n", len(Inner)), Inner),
		"chunked with space":        post("Transfer-Encoding : chunked\r\n"+both, chunked),
		"bare LF":                   "POST /outer HTTP/1.1\nHost: a\nContent-Length: 0\n\n",
		"bare LF hides a length":    post("X: y\nContent-Length: 0\r\n"+both, chunked),
		"bare LF hides chunked":     post("X: y\nTransfer-Encoding: chunked\r\n"+both, chunked),
		"bare CR hides a field":     post("X: y\rContent-Length: 3\r\n", ""),
		"bare LF in a chunk's size": post("Transfer-Encoding: chunked\r\n", "5\nhello\r\n0\r\n\r\n"),
		"bare LF ends a chunk":      post("Transfer-Encoding: chunked\r\n", "5\r\nhello\n0\r\n\r\n"),
		"no end of a chunk":         post("Transfer-Encoding: chunked\r\n", "5\r\nhelloXX0\r\n\r\n"),
		"obs-fold":                  post("X: y\r\n Transfer-Encoding: chunked\r\n"+both, chunked),
		"obs-fold of the encoding":  post("Transfer-Encoding:\r\n chunked\r\n"+both, chunked),
		"obs-fold with tab":         post("Transfer-Encoding:\r\n\tchunked\r\n"+both, chunked),
		"NUL in a value":            post("X: a\x00b\r\n", ""),
		"NUL in a name":             post("X\x00: a\r\n", ""),
		"NUL in the encoding":       post("Transfer-Encoding: chunked\x00\r\n"+both, chunked),
		"field without a colon":     post("Transfer-Encoding\r\n"+both, chunked),
		"field without a name":      post(": chunked\r\n", ""),
		"space before a field":      "POST /outer HTTP/1.1\r\n Host: a\r\nHost: b\r\n\r\n",
		"two hosts":                 "GET /outer HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"two hosts in a line":       "GET /outer HTTP/1.1\r\nHost: a, b\r\n\r\n",
		"no host":                   "GET /outer HTTP/1.1\r\n\r\n",
		"host with a path":          "GET /outer HTTP/1.1\r\nHost: a/b\r\n\r\n",
		"host and absolute form":    "GET http://a/outer HTTP/1.1\r\nHost: b\r\n\r\n",
		"HTTP/0.9":                  "GET /outer\r\n\r\n",
		"HTTP/1.0 chunked":          "POST /outer HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
		"HTTP/1.0 keeps open":       "GET /outer HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc",
		"HTTP/1.2":                  "GET /outer HTTP/1.2\r\nHost: a\r\n\r\n",
		"HTTP/2.0 in text":          "GET /outer HTTP/2.0\r\nHost: a\r\n\r\n",
		"lower case protocol":       "GET /outer http/1.1\r\nHost: a\r\n\r\n",
		"spaces in the first line":  "GET  /outer  HTTP/1.1\r\nHost: a\r\n\r\n",
		"tab in the first line":     "GET\t/outer\tHTTP/1.1\r\nHost: a\r\n\r\n",
		"a space in the target":     "GET /outer HTTP/1.1 /x HTTP/1.1\r\nHost: a\r\n\r\n",
		"CONNECT":                   "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n" + Inner,
		"CONNECT of a path":         "CONNECT /outer HTTP/1.1\r\nHost: a\r\n\r\n" + Inner,
		"TRACE":                     "TRACE /outer HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
		"upgrade to h2c":            "GET /outer HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"upgrade to TLS":            "GET /outer HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: TLS/1.0\r\n\r\n",
		"upgrade, bad version":      "GET /outer HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 777\r\n\r\n",
		"upgrade with a body":       "GET /outer HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(Inner)) + Inner,
		"connection drops length":   post("Connection: Content-Length\r\n"+fmt.Sprintf("Content-Length: %d\r\n", len(Inner)), Inner),
		"connection drops encoding": post("Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(Inner), Inner)),
		"connection drops host":     post("Connection: Host\r\nContent-Length: 0\r\n", ""),
		"trailer with a length":     post("Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n", "0\r\nContent-Length: 60\r\n\r\n"),
		"trailer with a host":       post("Transfer-Encoding: chunked\r\nTrailer: Host\r\n", "0\r\nHost: b\r\n\r\n"),
		"trailer with an encoding":  post("Transfer-Encoding: chunked\r\n", "0\r\nTransfer-Encoding: chunked\r\n\r\n"),
		"trailer with a key":        post("Transfer-Encoding: chunked\r\nTrailer: X-Api-Key\r\n", "1\r\nx\r\n0\r\nX-Api-Key: other\r\n\r\n"),
		"chunk extension":           post("Transfer-Encoding: chunked\r\n", "5;a=b\r\nhello\r\n0\r\n\r\n"),
		"chunk extension with LF":   post("Transfer-Encoding: chunked\r\n", "5;\nxx\r\nhello\r\n0\r\n\r\n"),
		"chunk extension is long":   post("Transfer-Encoding: chunked\r\n", strings.Repeat("1;"+strings.Repeat("a", 4000)+"\r\nx\r\n", 100)+"0\r\n\r\n"),
		"chunk of 2^64":             post("Transfer-Encoding: chunked\r\n", "10000000000000000\r\nhello\r\n0\r\n\r\n"),
		"half of 2^63":              post("Transfer-Encoding: chunked\r\n", "8000000000000000\r\nhello\r\n0\r\n\r\n"),
		"chunk of -1":               post("Transfer-Encoding: chunked\r\n", "-1\r\nhello\r\n0\r\n\r\n"),
		"chunk of 0x5":              post("Transfer-Encoding: chunked\r\n", "0x5\r\nhello\r\n0\r\n\r\n"),
		"chunk of nothing":          post("Transfer-Encoding: chunked\r\n", "\r\nhello\r\n0\r\n\r\n"),
		"chunk with spaces":         post("Transfer-Encoding: chunked\r\n", "5 \r\nhello\r\n0\r\n\r\n"),
		"half a chunk":              post("Transfer-Encoding: chunked\r\n", "5\r\nhel"),
		"half a body":               post("Content-Length: 100\r\n", "short"),
	}
	for _, n := range []string{"+5", "-5", "5.0", "0x5", "5 5", "", "a", "5;", "18446744073709551621", "9223372036854775808", "1e1", "٥", "5\x00", "\"5\""} {
		all["a length of "+n] = post("Content-Length: "+n+"\r\n", "hello")
	}
	for _, te := range []string{
		"xchunked", "chunked, identity", "identity, chunked", "chunked, chunked", "gzip, chunked", "\x0bchunked", "chunked\x0b", "\"chunked\"", "chunked;q=1", "CHUNKED ,", ",chunked", "cow", "identity", "chunked\t", " chunked",
	} {
		all["an encoding of "+te] = post("Transfer-Encoding: "+te+"\r\n"+both, chunked)
	}
	for _, twice := range [][2]string{{"chunked", "cow"}, {"cow", "chunked"}, {"chunked", "chunked"}, {"identity", "chunked"}} {
		all["encodings "+twice[0]+" and "+twice[1]] = post("Transfer-Encoding: "+twice[0]+"\r\nTransfer-encoding: "+twice[1]+"\r\n"+both, chunked)
	}
	for _, name := range []string{"Transfer_Encoding", "Transfer-Encoding\x00", "X-Transfer-Encoding", "Transfer Encoding", "\tTransfer-Encoding", "Transfer\u2010Encoding"} {
		all["the field "+name] = post(name+": chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n")
	}
	return all
}

// Responses returns responses of a compromised upstream, by request target. After a response that contains "close" it
// closes the connection.
func Responses() map[string]string {
	const second = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nApp-Saw: evil\r\n\r\nstolen"
	ok := "HTTP/1.1 200 OK\r\n"
	return map[string]string{
		"/evil/cl-te":        ok + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second,
		"/evil/two-lengths":  ok + "Content-Length: 0\r\nContent-Length: 5\r\n\r\nhello" + second,
		"/evil/surplus":      ok + "Content-Length: 2\r\n\r\nok" + second,
		"/evil/head":         ok + "Content-Length: 0\r\n\r\n" + second,
		"/evil/204":          "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello" + second,
		"/evil/304":          "HTTP/1.1 304 Not Modified\r\n\r\n" + second,
		"/evil/101":          "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + second,
		"/evil/101-h2c":      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + second,
		"/evil/1xx":          strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 50_000) + second,
		"/evil/100":          strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100_000) + second,
		"/evil/header":       ok + "X-Large: " + strings.Repeat("x", 3<<20) + "\r\nContent-Length: 0\r\n\r\n",
		"/evil/headers":      ok + strings.Repeat("X-Many: x\r\n", 300_000) + "Content-Length: 0\r\n\r\n",
		"/evil/split":        ok + "X: a\rSet-Cookie: b=c\r\nContent-Length: 0\r\n\r\n",
		"/evil/nul":          ok + "X: a\x00b\r\nContent-Length: 0\r\n\r\n",
		"/evil/name":         ok + "X y: a\r\nContent-Length: 0\r\n\r\n",
		"/evil/fold":         ok + "X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
		"/evil/status":       "HTTP/1.1 9999 No\r\n\r\n",
		"/evil/status-0":     "HTTP/1.1 000 No\r\n\r\n",
		"/evil/status-minus": "HTTP/1.1 -12 No\r\n\r\n",
		"/evil/length":       ok + "Content-Length: +5\r\n\r\nhello",
		"/evil/length-minus": ok + "Content-Length: -5\r\n\r\nhello",
		"/evil/chunk":        ok + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
		"/evil/chunk-ext":    ok + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1;"+strings.Repeat("a", 4000)+"\r\nx\r\n", 100) + "0\r\n\r\n",
		"/evil/te":           ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"/evil/te-cow":       ok + "Transfer-Encoding: cow\r\n\r\nclose",
		"/evil/garbage":      "\x00\xff\x16\x03\x01close",
		"/evil/http2":        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nclose",
		"/evil/hop":          ok + "Connection: X-Secret\r\nX-Secret: 1\r\nKeep-Alive: 1\r\nProxy-Authenticate: x\r\nContent-Length: 0\r\n\r\n",
		"/evil/ratelimit":    ok + "X-Ratelimit-Limit: 999999999999\r\nX-Ratelimit-Remaining: 999999999999\r\nContent-Length: 0\r\n\r\n",
		"/evil/request-id":   ok + "X-Request-Id: evil\r\nContent-Length: 0\r\n\r\n",
	}
}

// PathSpellings returns request targets that servers parse differently, many of them for /posts.
func PathSpellings() (all []string) {
	before := []string{
		"/", "//", "/./", "/x/../", "/%2e/", "/x/%2e%2e/", "/x/.%2E/", "/x/..;/", "/;/", "/%2f", "/\\", "/%5c", "/x%2f..%2f", "/x/..%2f", "/x\\..\\", "/%00/../", "/%252e%252e/", "/%c0%ae%c0%ae/", "/../",
		"http://a/", "http://a//", "http://b/", "https://a/", "/%e2%80%ae", "", "*/", "/#/", "/?/../", "/%zz/../", "/\x7f/../", "/~/../",
	}
	names := []string{"posts", "%70osts", "POSTS", "posts%20", "posts;a", "posts%3b", "posts%00", "posts/", "posts/.", "posts/x/..", "posts%2f", "p%6fsts?x", "posts#", "posts%23", "posts.", "%2570osts", "posts\t", "p\u00f3sts"}
	for _, b := range before {
		for _, name := range names {
			all = append(all, b+name)
		}
	}
	return all
}

// OtherTargets returns requests that try to reach another address, secret, through a proxy.
func OtherTargets(secret string) (all []string) {
	_, port, _ := strings.Cut(secret, ":")
	for _, target := range []string{
		"GET / HTTP/1.1\r\nHost: %s", "GET http://%s/ HTTP/1.1\r\nHost: a", "GET http://%s/ HTTP/1.1\r\nHost: %s", "GET https://%s/ HTTP/1.1\r\nHost: %s", "GET //%s/ HTTP/1.1\r\nHost: a", "GET @%s/ HTTP/1.1\r\nHost: a",
		"GET /@%s/ HTTP/1.1\r\nHost: a", "GET http://a@%s/ HTTP/1.1\r\nHost: a", "GET http:%s/ HTTP/1.1\r\nHost: a", "GET / HTTP/1.1\r\nHost: a@%s", "GET / HTTP/1.1\r\nHost: a#@%s", "GET \\\\%s\\ HTTP/1.1\r\nHost: a",
		"CONNECT %s HTTP/1.1\r\nHost: %s", "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Host: %s", "GET / HTTP/1.1\r\nHost: a\r\nX-Host: %s", "GET / HTTP/1.1\r\nHost: a\r\nForwarded: host=\"%s\"", "GET / HTTP/1.1\r\nHost: a\r\nX-Original-URL: http://%s/",
		"GET /http://%s/ HTTP/1.1\r\nHost: a", "GET /?url=http://%s/ HTTP/1.1\r\nHost: a", "GET / HTTP/1.1\r\nHost: [::ffff:127.0.0.1]:" + port, "GET / HTTP/1.1\r\nHost: 2130706433:" + port, "GET / HTTP/1.1\r\nHost: 0x7f.1:" + port,
		"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nOrigin: http://%s", "GET / HTTP/1.1\r\nHost: a\r\nProxy: http://%s", "GET / HTTP/1.1\r\nHost: a\r\nDestination: http://%s/",
	} {
		all = append(all, strings.ReplaceAll(target, "%s", secret)+"\r\nConnection: close\r\n\r\n")
	}
	return all
}

// Sized is a request of a certain size.
type Sized struct {
	Name, Text string
	Status     string // the valid status codes, unless the connection is closed
}

// SizedRequests returns requests near the size limits of a gateway, and larger ones. The limit of bodies is 100 KiB.
func SizedRequests() []Sized {
	x := func(n int) string { return strings.Repeat("x", n) }
	chunks := func(n int) string { return strings.Repeat("400\r\n"+x(1024)+"\r\n", n) + "0\r\n\r\n" }
	const get, post = "GET /big%s HTTP/1.1\r\nHost: a\r\n%s\r\n", "POST /big HTTP/1.1\r\nHost: a\r\n%s\r\n%s"
	return []Sized{
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
	}
}
