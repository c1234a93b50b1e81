package main

import (
	"bufio"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
	"github.com/sluiceproject/sluice/internal/match"
)

// Request smuggling and ambiguous requests bypass no limit: every request that reaches the upstream was counted, and under the path
// that it has there.
func TestGatewayHostile(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.counted(t)
	y.app.taken()
	t.Run("smuggled requests", func(t *testing.T) { smuggling(t, y) })
	t.Run("smuggled responses", func(t *testing.T) { answerSmuggling(t, y) })
	t.Run("spoofed addresses", func(t *testing.T) { spoofing(t, y) })
	t.Run("spellings of paths", func(t *testing.T) { pathTricks(t, y) })
	t.Run("spellings of keys", func(t *testing.T) { keyTricks(t, y) })
	t.Run("spellings of cookies and queries", func(t *testing.T) { pairTricks(t, y) })
	t.Run("other targets", func(t *testing.T) { otherTargets(t, y) })
	t.Run("too large", func(t *testing.T) { tooLarge(t, y) })
}

func smuggling(t *testing.T, y *yard) {
	corpus := attacks.Smuggled()
	if len(corpus) < 90 {
		t.Errorf("found only %d attacks", len(corpus))
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
		seen = seen[:len(seen)-1] // the request of counted
		told := int64(strings.Count(answers, "App-Saw: ") - strings.Count(answers, "App-Saw: GET /last\r\n"))
		if n := int64(len(seen)); n > 1 || n > counted || told > n || len(odd) > 0 {
			t.Errorf("%s: the upstream got %d requests, %d were counted and %d got responses:\n%q\n%q", name, n, counted, told, seen, odd)
		}
		for _, s := range seen {
			if strings.HasPrefix(s, "GET /smuggled") {
				t.Errorf("%s: smuggled as %q", name, s)
			}
			passed++
		}
		if len(seen) == 0 && answers != "" && !regexp.MustCompile(`^HTTP/1\.[01] [45]\d\d `).MatchString(answers) {
			t.Errorf("%s: the response is %.200q", name, answers)
		}
		if strings.Contains(answers, " 500 ") || strings.Contains(answers, " 502 ") {
			t.Errorf("%s: the gateway failed: %.100q", name, answers)
		}
	}
	if passed < 5 || passed > len(corpus)/2 {
		t.Errorf("%d of %d passed", passed, len(corpus))
	}
	const three = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /3 HTTP/1.1\r\nHost: a\r\n\r\n"
	answers := y.say(t, three) // pipelining is valid
	if n := y.counted(t); n != 3 || strings.Count(answers, "App-Saw: ") != 4 {
		t.Errorf("of three pipelined requests %d were counted: %s", n, answers)
	}
	y.app.taken()
}

// With any response of the upstream, each client gets the response to its own request, or an error.
func answerSmuggling(t *testing.T, y *yard) {
	for target := range attacks.Responses() {
		for _, method := range []string{"GET", "HEAD"} {
			text := y.say(t, method+" "+target+" HTTP/1.1\r\nHost: a\r\n\r\n")
			for text = strings.TrimSpace(text); strings.HasPrefix(text, "HTTP/1.1 1"); { // skip 1xx responses
				_, text, _ = strings.Cut(text, "\r\n\r\n")
			}
			if strings.Contains(text, "stolen") && !strings.HasSuffix(target, "xx") && !strings.HasSuffix(target, "100") {
				t.Errorf("%s %s: the client received %.300q", method, target, text)
			}
			// One response, and the one to /last.
			if n := strings.Count(text, "HTTP/1.1 "); n > 2 || n == 2 && !strings.Contains(text, "App-Saw: GET /last\r\n") || len(text) > 2<<20 {
				t.Errorf("%s %s: %d responses: %.300q", method, target, n, text)
			}
			for _, word := range []string{"X-Secret", "\nSet-Cookie: b", "X-Request-Id: evil", "999999999999"} {
				if strings.Contains(text, word) {
					t.Errorf("%s %s: the client received %s: %.300q", method, target, word, text)
				}
			}
			for i := range 4 { // on upstream connections that the gateway may reuse
				want := fmt.Sprintf("/good/%d", i)
				resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(y.say(t, "GET "+want+" HTTP/1.1\r\nHost: a\r\n\r\n"))), nil)
				if err != nil {
					t.Fatalf("after %s: %v", target, err)
				}
				if got := resp.Header.Get("App-Saw"); got != "GET "+want {
					t.Errorf("after %s %s the response to %s is that to %q", method, target, want, got)
				}
				resp.Body.Close()
			}
		}
	}
	y.counted(t)
	y.app.taken()
}

// pathTricks sends spellings of a path that servers interpret differently. Those that reach the upstream were counted under the
// same path.
func pathTricks(t *testing.T, y *yard) {
	tried, arrived := 0, map[string]int{}
	for _, spelling := range attacks.PathSpellings() {
		tried++
		answers := y.say(t, "GET "+spelling+" HTTP/1.1\r\nHost: a\r\n\r\n")
		seen, odd := y.app.taken()
		if len(odd) > 0 || len(seen) > 1 {
			t.Fatalf("%q: the upstream got %q %q", spelling, seen, odd)
		}
		if len(seen) == 0 {
			if !strings.HasPrefix(answers, "HTTP/1.1 400 ") && !strings.HasPrefix(answers, "HTTP/1.1 404 ") {
				t.Errorf("%q: %.200q", spelling, answers)
			}
			continue
		}
		target := strings.Split(seen[0], " ")[1]
		raw, _, _ := strings.Cut(target, "?")
		canonical, err := match.CanonicalPath(raw)
		if err != nil || strings.ContainsAny(raw, `;\`) || match.EscapePath(canonical) != raw && match.EscapePath(canonical)+"/" != raw {
			t.Errorf("%q arrives as %q, which is ambiguous: %v", spelling, target, err)
		}
		// Some servers ignore dots and spaces at the ends of names and serve these as /posts, so the rule for /posts applies.
		matched := strings.TrimLeft(strings.TrimRight(strings.TrimPrefix(canonical, "/"), ". "), " ")
		if asPosts := strings.Contains(answers, `"posts";`); asPosts != (matched == "posts") {
			t.Errorf("%q arrives as %q and was counted under another path: %.500q", spelling, target, answers)
		}
		arrived[canonical]++
	}
	if tried < 500 || arrived["/posts"] < 50 {
		t.Errorf("of %d spellings %v arrived", tried, arrived)
	}
	y.counted(t)
	y.app.taken()
}
