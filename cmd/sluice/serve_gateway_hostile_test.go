package main

import (
	"bufio"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/rules"
)

// Whoever tries to say two things at once, or one thing in two ways, gets no further than others: what reaches the
// application was counted, and is what was counted.
func TestGatewayHostile(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.counted(t)
	y.app.taken()
	t.Run("smuggled requests", func(t *testing.T) { smuggling(t, y) })
	t.Run("smuggled answers", func(t *testing.T) { answerSmuggling(t, y) })
	t.Run("spoofed addresses", func(t *testing.T) { spoofing(t, y) })
	t.Run("spellings of paths", func(t *testing.T) { pathTricks(t, y) })
	t.Run("spellings of keys", func(t *testing.T) { keyTricks(t, y) })
	t.Run("other targets", func(t *testing.T) { otherTargets(t, y) })
	t.Run("too large", func(t *testing.T) { tooLarge(t, y) })
}

// inner is a request that is hidden in the body of another.
const inner = "GET /smuggled HTTP/1.1\r\nHost: a\r\nX-Api-Key: other\r\n\r\n"

// smuggled are requests that two servers may read differently. Each may get one request to the application, or none, and
// never the hidden one. They begin on a connection of their own.
func smuggled() map[string]string {
	post := func(fields, body string) string {
		return "POST /outer HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n" + body
	}
	both := fmt.Sprintf("Content-Length: %d\r\n", len("0\r\n\r\n"+inner))
	chunked := "0\r\n\r\n" + inner
	all := map[string]string{
		"CL.TE":                     post(both+"Transfer-Encoding: chunked\r\n", chunked),
		"TE.CL":                     post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(inner), inner)),
		"two lengths":               post(fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n", len(inner)), inner),
		"two lengths, other order":  post(fmt.Sprintf("Content-Length: %d\r\nContent-Length: 0\r\n", len(inner)), inner),
		"two lengths in a line":     post(fmt.Sprintf("Content-Length: 0, %d\r\n", len(inner)), inner),
		"length with space":         post(fmt.Sprintf("Content-Length : %d\r\n", len(inner)), inner),
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
		"CONNECT":                   "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n" + inner,
		"CONNECT of a path":         "CONNECT /outer HTTP/1.1\r\nHost: a\r\n\r\n" + inner,
		"TRACE":                     "TRACE /outer HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
		"upgrade to h2c":            "GET /outer HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"upgrade to TLS":            "GET /outer HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: TLS/1.0\r\n\r\n",
		"upgrade that is refused":   "GET /outer HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 777\r\n\r\n",
		"upgrade with a body":       "GET /outer HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(inner)) + inner,
		"connection drops length":   post("Connection: Content-Length\r\n"+fmt.Sprintf("Content-Length: %d\r\n", len(inner)), inner),
		"connection drops encoding": post("Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(inner), inner)),
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

func smuggling(t *testing.T, y *yard) {
	corpus := smuggled()
	if len(corpus) < 90 {
		t.Errorf("there are %d", len(corpus))
	}
	passed := 0
	for name, text := range corpus {
		answers := ""
		if strings.HasPrefix(name, "half") {
			answers = y.sayHalf(t, text)
		} else {
			answers = y.say(t, text)
		}
		counted := y.counted(t)
		seen, odd := y.app.taken()
		seen = seen[:len(seen)-1] // the look
		told := int64(strings.Count(answers, "App-Saw: ") - strings.Count(answers, "App-Saw: GET /last\r\n"))
		if n := int64(len(seen)); n > 1 || n > counted || told > n || len(odd) > 0 {
			t.Errorf("%s: the application got %d, %d were counted and %d answered:\n%q\n%q", name, n, counted, told, seen, odd)
		}
		for _, s := range seen {
			if strings.HasPrefix(s, "GET /smuggled") {
				t.Errorf("%s: got through as %q", name, s)
			}
			passed++
		}
		if len(seen) == 0 && answers != "" && !regexp.MustCompile(`^HTTP/1\.[01] [45]\d\d `).MatchString(answers) {
			t.Errorf("%s: the answer is %.200q", name, answers)
		}
		if strings.Contains(answers, " 500 ") || strings.Contains(answers, " 502 ") {
			t.Errorf("%s: is the gateway's fault: %.100q", name, answers)
		}
	}
	if passed < 5 || passed > len(corpus)/2 {
		t.Errorf("%d of %d passed", passed, len(corpus))
	}
	const three = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /3 HTTP/1.1\r\nHost: a\r\n\r\n"
	answers := y.say(t, three) // which is no trick
	if n := y.counted(t); n != 3 || strings.Count(answers, "App-Saw: ") != 4 {
		t.Errorf("of three requests in a row %d were counted: %s", n, answers)
	}
	y.app.taken()
}

// evilAnswers are what an application may answer that has been taken over, by target.
func evilAnswers() map[string]string {
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

// Whatever the application answers, each client gets an answer to its own question, or a fault.
func answerSmuggling(t *testing.T, y *yard) {
	for target := range evilAnswers() {
		for _, method := range []string{"GET", "HEAD"} {
			text := y.say(t, method+" "+target+" HTTP/1.1\r\nHost: a\r\n\r\n")
			for text = strings.TrimSpace(text); strings.HasPrefix(text, "HTTP/1.1 1"); { // what comes before an answer
				_, text, _ = strings.Cut(text, "\r\n\r\n")
			}
			if strings.Contains(text, "stolen") && !strings.HasSuffix(target, "xx") && !strings.HasSuffix(target, "100") {
				t.Errorf("%s %s: the client is told %.300q", method, target, text)
			}
			// One answer, and that to the last question.
			if n := strings.Count(text, "HTTP/1.1 "); n > 2 || n == 2 && !strings.Contains(text, "App-Saw: GET /last\r\n") || len(text) > 2<<20 {
				t.Errorf("%s %s: there are %d answers: %.300q", method, target, n, text)
			}
			for _, word := range []string{"X-Secret", "\nSet-Cookie: b", "X-Request-Id: evil", "999999999999"} {
				if strings.Contains(text, word) {
					t.Errorf("%s %s: the client is told %s: %.300q", method, target, word, text)
				}
			}
			for i := range 4 { // on connections that the gateway may keep
				want := fmt.Sprintf("/good/%d", i)
				resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(y.say(t, "GET "+want+" HTTP/1.1\r\nHost: a\r\n\r\n"))), nil)
				if err != nil {
					t.Fatalf("after %s: %v", target, err)
				}
				if got := resp.Header.Get("App-Saw"); got != "GET "+want {
					t.Errorf("after %s %s the answer to %s is that to %q", method, target, want, got)
				}
				resp.Body.Close()
			}
		}
	}
	y.counted(t)
	y.app.taken()
}

// pathTricks are spellings made of what servers disagree about. Those that arrive are what the rules counted.
func pathTricks(t *testing.T, y *yard) {
	before := []string{
		"/", "//", "/./", "/x/../", "/%2e/", "/x/%2e%2e/", "/x/.%2E/", "/x/..;/", "/;/", "/%2f", "/\\", "/%5c", "/x%2f..%2f", "/x/..%2f", "/x\\..\\", "/%00/../", "/%252e%252e/", "/%c0%ae%c0%ae/", "/../",
		"http://a/", "http://a//", "http://b/", "https://a/", "/%e2%80%ae", "", "*/", "/#/", "/?/../", "/%zz/../", "/\x7f/../", "/~/../",
	}
	names := []string{"posts", "%70osts", "POSTS", "posts%20", "posts;a", "posts%3b", "posts%00", "posts/", "posts/.", "posts/x/..", "posts%2f", "p%6fsts?x", "posts#", "posts%23", "posts.", "%2570osts", "posts\t", "p\u00f3sts"}
	tried, arrived := 0, map[string]int{}
	for _, b := range before {
		for _, name := range names {
			tried++
			answers := y.say(t, "GET "+b+name+" HTTP/1.1\r\nHost: a\r\n\r\n")
			seen, odd := y.app.taken()
			if len(odd) > 0 || len(seen) > 1 {
				t.Fatalf("%q: the application saw %q %q", b+name, seen, odd)
			}
			if len(seen) == 0 {
				if !strings.HasPrefix(answers, "HTTP/1.1 400 ") && !strings.HasPrefix(answers, "HTTP/1.1 404 ") {
					t.Errorf("%q: %.200q", b+name, answers)
				}
				continue
			}
			target := strings.Split(seen[0], " ")[1]
			raw, _, _ := strings.Cut(target, "?")
			canonical, err := rules.CanonicalPath(raw)
			if err != nil || strings.ContainsAny(raw, `;\`) || rules.EscapePath(canonical) != raw && rules.EscapePath(canonical)+"/" != raw {
				t.Errorf("%q arrives as %q, which not all read alike: %v", b+name, target, err)
			}
			if asPosts := strings.Contains(answers, `"posts";`); asPosts != (canonical == "/posts") {
				t.Errorf("%q arrives as %q and was counted otherwise: %.500q", b+name, target, answers)
			}
			arrived[canonical]++
		}
	}
	if tried < 500 || arrived["/posts"] < 50 {
		t.Errorf("of %d there arrived %v", tried, arrived)
	}
	y.counted(t)
	y.app.taken()
}
