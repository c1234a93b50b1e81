package accesslog

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// full returns a record with all fields set.
func full() Record {
	return Record{
		Time: time.Date(2026, 1, 2, 15, 4, 5, 6000, time.UTC), Duration: 1234567 * time.Microsecond,
		Method: "POST", Host: "api.example.com", Path: "/posts/%2f", Query: "draft=1&x=", Proto: "HTTP/2.0", Status: 429, BytesIn: 10, BytesOut: 512,
		Client: netip.MustParseAddr("192.0.2.1"), User: "ada", Plan: "pro", Route: "posts", Upstream: "api", Server: "http://127.0.0.1:9002", Decision: Denied, Rule: "posts",
		Delay: 20 * time.Millisecond, ID: "7f3a", Item: "5e1f", Attempt: 2, Outcome: "done", Referer: "https://example.com/", UserAgent: "curl/8",
	}
}

// The formats are stable, because other programs parse them.
func TestFormats(t *testing.T) {
	r := full()
	for _, c := range []struct{ got, want string }{
		{string(AppendJSON(nil, &r, true)), `{"time":"2026-01-02T15:04:05.000006Z","duration_seconds":1.234567,"method":"POST","host":"api.example.com","path":"/posts/%2f",` +
			`"query":"draft=1&x=","proto":"HTTP/2.0","status":429,"bytes_in":10,"bytes_out":512,"client_ip":"192.0.2.1","user":"ada","plan":"pro","route":"posts",` +
			`"upstream":"api","server":"http://127.0.0.1:9002","decision":"denied","rule":"posts","delay_seconds":0.020000,"request_id":"7f3a","queue_item":"5e1f","attempt":2,"outcome":"done","referer":"https://example.com/","user_agent":"curl/8"}` + "\n"},
		{string(appendCombined(nil, &r, true)), `192.0.2.1 - ada [02/Jan/2026:15:04:05 +0000] "POST /posts/%2f?draft=1&x= HTTP/2.0" 429 512 "https://example.com/" "curl/8"` + "\n"},
		{string(AppendJSON(nil, &Record{}, true)), `{"time":"0001-01-01T00:00:00.000000Z","duration_seconds":0.000000,"status":0,"bytes_in":0,"bytes_out":0}` + "\n"},
		{string(appendCombined(nil, &Record{}, true)), `- - - [01/Jan/0001:00:00:00 +0000] "- -" 0 0 "-" "-"` + "\n"},
	} {
		if c.got != c.want {
			t.Errorf("got  %swant %s", c.got, c.want)
		}
	}
	for _, text := range []string{string(AppendJSON(nil, &r, false)), string(appendCombined(nil, &r, false))} {
		if strings.Contains(text, "draft") {
			t.Errorf("the query is written without Config.Query: %s", text)
		}
	}
}

// hostile contains values that clients send to forge lines, control terminals or break log readers.
var hostile = []string{
	"a\n192.0.2.9 - - forged", "a\r\n{\"time\":", "\x1b[2J\x1b[1;31mred", "\u009b31mC1", "\u0085next line", "\u2028line\u2029", "\u202eesrever\u2066",
	"\x00nul", "\x7fdel", "\xff\xfe no text", "\xc2", `","status":200,"x":"`, `" 200 0 "-" "forged`, "tab\t\v\f", "\ufeffmark", "\U000e0001tag", "-", `\x41`, `\`, `"`, "?", "a b",
	strings.Repeat("ü", 9000), strings.Repeat("\x1b", 9000), "\ufffd", "] \"GET", "[", "a [b",
}

// For any values, a request is one line of printable text within MaxLine, and its values are read back.
func TestHostileValues(t *testing.T) {
	for _, text := range hostile {
		r := full()
		for _, f := range []*string{
			&r.Method, &r.Host, &r.Path, &r.Query, &r.Proto, &r.User, &r.Plan, &r.Route, &r.Upstream, &r.Server, &r.Rule, &r.ID, &r.Item, &r.Outcome, &r.Referer, &r.UserAgent,
		} {
			*f = text
		}
		combined := appendCombined(nil, &r, true)
		checkLine(t, combined, false)
		line := AppendJSON(nil, &r, true)
		checkLine(t, line, true)
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil || fields["status"] != 429.0 || len(fields) != 25 {
			t.Errorf("%q: %v: %s", text, err, line)
		}
		if want := clean(text, maxName); fields["user"] != want || fields["method"] != want {
			t.Errorf("%.20q: user %.50q, want %.50q", text, fields["user"], want)
		}
	}
}

func checkLine(t *testing.T, line []byte, isJSON bool) {
	t.Helper()
	s, ended := strings.CutSuffix(string(line), "\n")
	if i := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 || !ended || !utf8.ValidString(s) {
		t.Errorf("not a line of text: %q", line)
	}
	if isJSON != json.Valid(line) || len(line) >= MaxLine {
		t.Errorf("%d bytes, JSON is %v: %.200s", len(line), isJSON, line)
	}
}

// clean returns s as it is read back: truncated, with invalid UTF-8 as \xff.
func clean(s string, most int) string {
	s, cut := bounded(s, most)
	var b strings.Builder
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd") {
			b.WriteString(`\x`)
			b.WriteByte(hexDigits[s[i]>>4])
			b.WriteByte(hexDigits[s[i]&15])
			continue
		}
		b.WriteRune(r)
	}
	if cut {
		b.WriteString(ellipsis)
	}
	return b.String()
}

// one reads a single line.
func one(t interface{ Fatalf(string, ...any) }, line []byte) Record {
	var r Record
	if err := ParseJSON(string(line), &r); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return r
}

// Written records are read back.
func TestRoundTrip(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.RuneFrom([]rune("a-\"\\ ?[]x2\n\xff…")), 0, 20, -1), rapid.SampledFrom(hostile))
	bytes64 := rapid.Int64Range(0, 1<<62)
	rapid.Check(t, func(t *rapid.T) {
		d := func(label string) time.Duration {
			return time.Duration(rapid.Int64Range(0, 1e12).Draw(t, label)) * time.Microsecond
		}
		r := Record{
			Time:     time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "time")).UTC(),
			Duration: d("duration"), Delay: d("delay"),
			Method: text.Draw(t, "method"), Host: text.Draw(t, "host"), Path: "/" + text.Draw(t, "path"), Query: text.Draw(t, "query"),
			Proto: text.Draw(t, "proto"), Status: rapid.IntRange(0, 999).Draw(t, "status"), BytesIn: bytes64.Draw(t, "in"), BytesOut: bytes64.Draw(t, "out"),
			User: text.Draw(t, "user"), Plan: text.Draw(t, "plan"), Route: text.Draw(t, "route"), Upstream: text.Draw(t, "upstream"),
			Decision: Decision(rapid.IntRange(0, int(Exempt)).Draw(t, "decision")), Rule: text.Draw(t, "rule"), ID: text.Draw(t, "id"),
			Item: text.Draw(t, "item"), Attempt: rapid.IntRange(0, 99).Draw(t, "attempt"), Outcome: text.Draw(t, "outcome"),
			Referer: text.Draw(t, "referer"), UserAgent: text.Draw(t, "agent"),
		}
		if rapid.Bool().Draw(t, "has client") {
			r.Client = netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "client")))
		}
		got := one(t, AppendJSON(nil, &r, true))
		want := r
		for _, f := range []*string{&want.Method, &want.Host, &want.Proto, &want.User, &want.Plan, &want.Route, &want.Upstream, &want.Server, &want.Rule, &want.ID, &want.Item, &want.Outcome} {
			*f = clean(*f, maxName)
		}
		want.Path, want.Query = clean(r.Path, maxTarget), clean(r.Query, maxTarget)
		want.Referer, want.UserAgent = clean(r.Referer, maxText), clean(r.UserAgent, maxText)
		if got != want {
			t.Fatalf("JSON:\n got %+v\nwant %+v", got, want)
		}
	})
}
