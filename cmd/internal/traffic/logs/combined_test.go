package logs

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
)

func TestCombined(t *testing.T) {
	at := time.Date(2019, 1, 22, 0, 26, 14, 0, time.UTC)
	client := netip.MustParseAddr("198.18.0.2")
	for line, want := range map[string]accesslog.Record{
		// combined, with an additional field
		`198.18.0.2 - - [22/Jan/2019:03:56:14 +0330] "GET /a%20b?q=1 HTTP/1.1" 200 30577 "-" "Mozilla/5.0 (a; \"b\")" "-"`: {
			Time: at, Method: "GET", Path: "/a%20b", Query: "q=1", Proto: "HTTP/1.1", Status: 200, BytesOut: 30577, Client: client, UserAgent: `Mozilla/5.0 (a; "b")`,
		},
		// common; a user with a space; no size; HTTP/0.9
		`::ffff:198.18.0.2 ident a b [21/Jan/2019:19:26:14 -0500] "GET /" 304 -`: {Time: at, Method: "GET", Path: "/", Status: 304, Client: client, User: "a b"},
		// a host name instead of an address, a path with a space, escapes
		`www.example.com - - [22/Jan/2019:00:26:14 +0000] "POST /a b\x20\xC3\xBC HTTP/1.0" 404 0`: {
			Time: at, Method: "POST", Path: "/a b ü", Proto: "HTTP/1.0", Status: 404, Client: HostAddr("WWW.example.com"),
		},
		// a request time in milliseconds: nginx, whose times are ends
		`198.18.0.2 - - [22/Jan/2019:00:26:15 +0000] "GET / HTTP/1.1" 200 1 "-" "-" "-" rt=1.000 urt="0.999"`: {
			Time: at, Method: "GET", Path: "/", Proto: "HTTP/1.1", Status: 200, BytesOut: 1, Client: client, Duration: time.Second,
		},
		// an integer is not a request time of nginx
		`198.18.0.2 - - [22/Jan/2019:00:26:14 +0000] "GET http://h.example:81/?x HTTP/1.1" 200 1 "-" "-" 1000`: {
			Time: at, Method: "GET", Host: "h.example:81", Path: "/", Query: "x", Proto: "HTTP/1.1", Status: 200, BytesOut: 1, Client: client,
		},
	} {
		all, _ := read(t, Options{}, line)
		if len(all) != 1 || all[0].Record != want {
			t.Errorf("%s\n got %+v\nwant %+v", line, all, want)
		}
	}
}

// hostile contains values that break readers of lines.
var hostile = []string{
	"a\n192.0.2.9 - - forged", "\x1b[2J", "\x00nul", "\xff\xfe no text", `","status":200,"x":"`, `" 200 0 "-" "forged`, "tab\t", "-", `\x41`, `\`, `"`, "?", "a b",
	"] \"GET", "[", "a [b", "ü", "x?y z",
}

// Records that the gateway writes in the combined format are read back, except the fields that it lacks.
func TestCombinedRoundTrip(t *testing.T) {
	text := rapid.OneOf(rapid.StringN(0, 50, 200), rapid.StringOfN(rapid.RuneFrom([]rune("a-\"\\ ?[]x2\n\xff…")), 0, 20, 200), rapid.SampledFrom(hostile))
	rapid.Check(t, func(t *rapid.T) {
		want := accesslog.Record{
			Time:   time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "time"), 0).UTC(),
			Method: text.Draw(t, "method"), Path: "/" + text.Draw(t, "path"), Query: text.Draw(t, "query"), Proto: "HTTP/1.1",
			Status: rapid.IntRange(0, 999).Draw(t, "status"), BytesOut: rapid.Int64Range(0, 1<<62).Draw(t, "out"), User: text.Draw(t, "user"),
			Referer: text.Draw(t, "referer"), UserAgent: text.Draw(t, "agent"),
		}
		if rapid.Bool().Draw(t, "has client") {
			want.Client = netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "client"))).Unmap()
		}
		if want.Method == "" {
			want.Method = "GET"
		}
		all, _ := read(t, Options{}, written(t, accesslog.Combined, want))
		if len(all) != 1 || all[0].Record != want {
			t.Fatalf("got  %+v\nwant %+v", all, want)
		}
	})
}

// Records that the gateway writes as JSON are read back.
func TestSluiceRoundTrip(t *testing.T) {
	want := accesslog.Record{
		Time: time.Date(2026, 1, 2, 15, 4, 5, 6000, time.UTC), Duration: 1234567 * time.Microsecond,
		Method: "POST", Host: "api.example.com", Path: "/posts/%2f", Query: "draft=1&x=", Proto: "HTTP/2.0", Status: 429, BytesIn: 10, BytesOut: 512,
		Client: netip.MustParseAddr("192.0.2.1"), User: "ada", Plan: "pro", Route: "posts", Upstream: "api", Decision: accesslog.Denied, Rule: "posts",
		Delay: 20 * time.Millisecond, ID: "7f3a", Referer: "https://example.com/", UserAgent: "curl/8",
	}
	delivery, exempt := want, want
	delivery.Attempt, exempt.Decision = 1, accesslog.Exempt
	all, m := read(t, Options{}, written(t, accesslog.JSON, want, delivery, exempt))
	if len(all) != 1 || all[0].Record != want || m.Logs[0].Skipped != 2 || m.Logs[0].Format() != "sluice" {
		t.Errorf("%d skipped, got %+v\nwant %+v", m.Logs[0].Skipped, all, want)
	}
}
