package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// Lines of other servers are read.
func TestOthersLines(t *testing.T) {
	at := time.Date(2019, 1, 22, 0, 26, 14, 0, time.UTC)
	client := netip.MustParseAddr("198.18.0.2")
	for line, want := range map[string]Record{
		// combined, with an additional field
		`198.18.0.2 - - [22/Jan/2019:03:56:14 +0330] "GET /a%20b?q=1 HTTP/1.1" 200 30577 "-" "Mozilla/5.0 (a; \"b\")" "-"`: {
			Time: at, Method: "GET", Path: "/a%20b", Query: "q=1", Proto: "HTTP/1.1", Status: 200, BytesOut: 30577, Client: client, UserAgent: `Mozilla/5.0 (a; "b")`,
		},
		// common; a user with a space; no size; HTTP/0.9
		`::ffff:198.18.0.2 ident a b [21/Jan/2019:19:26:14 -0500] "GET /" 304 -`: {Time: at, Method: "GET", Path: "/", Status: 304, Client: client, User: "a b"},
		// a host name instead of an address, a path with a space, escapes
		`www.example.com - - [22/Jan/2019:00:26:14 +0000] "POST /a b\x20\xC3\xBC HTTP/1.0" 404 0`: {
			Time: at, Method: "POST", Path: "/a b ü", Proto: "HTTP/1.0", Status: 404,
		},
	} {
		if got, f := one(t, []byte(line)); got != want || f != Combined {
			t.Errorf("%s\n got %+v\nwant %+v", line, got, want)
		}
	}
}

// Unknown fields of a later version are ignored.
func TestLaterVersion(t *testing.T) {
	got, f := one(t, []byte(` { "time" : "2026-01-02T16:04:05.5+01:00" , "new":{"a":[1,"}",{}]},"n":null,"path":"/\u00fc","status": 200 ,"decision":"pondered"}`)[1:])
	if want := (Record{Time: time.Date(2026, 1, 2, 15, 4, 5, 5e8, time.UTC), Path: "/ü", Status: 200}); got != want || f != JSON {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Invalid lines are counted and the first are returned; all others are read.
func TestBadLines(t *testing.T) {
	good := string(appendJSON(nil, &Record{Time: time.Unix(1, 0), Path: "/"}, false))
	bad := []string{
		"hello", `{"time":"2026-01-02T15:04:05Z"}`, `{"path":"/"}`, `{"time":"yesterday","path":"/"}`, `{"time":"2026-01-02T15:04:05Z","path":"/"`,
		`{"time":"2026-01-02T15:04:05Z","path":"/","status":"200x}`, `{"time":"2026-01-02T15:04:05Z","path":"/","status":x}`, `{}}`, `{"a" 1}`, `{"a":1 "b":2}`,
		`192.0.2.1 - - [30/Feb/2026 "GET / HTTP/1.1" 200 5`, `192.0.2.1 - - [22/Jan/2019:03:56:14 +0330] "\x16\x03\x01" 400 5`,
		`192.0.2.1 - - [22/Jan/2019:03:56:14 +0330] "GET / HTTP/1.1" ok 5`, `192.0.2.1 - - [22/Jan/2019:03:56:14 +0330] "GET / HTTP/1.1`,
		`192.0.2.1 - - [22/Jan/2019:25:56:14 +0330] "GET / HTTP/1.1" 200 5`, `192.0.2.1 - - [22/jan/2019:23:56:14 +0330] "GET / HTTP/1.1" 200 5`,
		`{"time":"0001-01-02T15:04:05Z","path":"/"}`, `192.0.2.1 - - [22/Jan/9019:13:56:14 +0330] "GET / HTTP/1.1" 200 5`, strings.Repeat("x", 3*MaxLine), `{"time":"` + strings.Repeat("x", 2*MaxLine),
	}
	var log strings.Builder
	for _, line := range bad {
		log.WriteString(line + "\n\n" + good)
	}
	log.WriteString("torn")
	d := NewReader(strings.NewReader(log.String()))
	n := 0
	for {
		var r Record
		if _, err := d.Next(&r); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			break
		}
		n++
	}
	count, faults := d.Errors()
	if n != len(bad) || count != len(bad)+1 || d.Lines() != 3*len(bad)+1 {
		t.Errorf("%d valid of %d, %d invalid of %d, %d lines", n, len(bad), count, len(bad)+1, d.Lines())
	}
	if len(faults) != keptFaults || faults[1].Line != 4 || faults[1].Text != bad[1] || !strings.Contains(faults[1].Err.Error(), "path") {
		t.Errorf("%+v", faults)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, os.ErrPermission }

func TestReadError(t *testing.T) {
	for _, before := range []string{"", "half a line", strings.Repeat("x", 2*MaxLine)} {
		d := NewReader(io.MultiReader(strings.NewReader(before), failing{}))
		if _, err := d.Next(new(Record)); !errors.Is(err, os.ErrPermission) {
			t.Errorf("after %.20q: %v", before, err)
		}
	}
}

// No content stops the reader. Its results equal those of encoding/json, and its records can be written and read again.
func FuzzReader(f *testing.F) {
	r := full()
	f.Add(appendJSON(nil, &r, true))
	f.Add(appendCombined(nil, &r, true))
	f.Add([]byte(`192.0.2.1 - - [22/Jan/2019:03:56:14 +0330] "GET /?a=\x41\" HTTP/1.1" 200 - "-" "\\" x` + "\r\nbad\n\n{\"time\":1}"))
	f.Add([]byte(`{"time":"2026-01-02T15:04:05Z","path":"/\ud83d\ude00","x":[{"a":"]"}],"status":-1}`))
	f.Fuzz(func(t *testing.T, log []byte) {
		d := NewReader(bytes.NewReader(log))
		n := 0
		for ; ; n++ {
			var r Record
			format, err := d.Next(&r)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				break
			}
			r.Time = r.Time.Truncate(time.Microsecond)
			r.Client = r.Client.WithZone("")
			if r.Path == "" && r.Method == "" {
				continue
			}
			line := appendJSON(nil, &r, true)
			checkLine(t, line, true)
			again, _ := one(t, line)
			if twice := appendJSON(nil, &again, true); !bytes.Equal(line, twice) {
				t.Fatalf("format %d\nfirst  %ssecond %s", format, line, twice)
			}
		}
		if bad, _ := d.Errors(); n+bad > d.Lines() {
			t.Fatalf("%d valid and %d invalid of %d lines", n, bad, d.Lines())
		}
		sameAsStandard(t, string(log))
	})
}

func sameAsStandard(t *testing.T, line string) {
	var want struct {
		Path   string `json:"path"`
		User   string `json:"user"`
		Status int    `json:"status"`
	}
	var names map[string]json.RawMessage
	if !strings.HasPrefix(line, "{") || strings.Contains(line, "\n") || json.Unmarshal([]byte(line), &names) != nil || json.Unmarshal([]byte(line), &want) != nil {
		return
	}
	for name := range names { // encoding/json matches names case-insensitively
		if name != strings.ToLower(name) || strings.ContainsFunc(name, func(r rune) bool { return r > 0x7f }) {
			return
		}
	}
	var got Record
	if parseJSON(line, &got) == nil && (got.Path != strings.ToValidUTF8(want.Path, "") && got.Path != want.Path || got.Status != want.Status) {
		t.Fatalf("got %+v, encoding/json has %+v", got, want)
	}
}
