package accesslog

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// Unknown fields of a later version are ignored.
func TestLaterVersion(t *testing.T) {
	got := one(t, []byte(`{ "time" : "2026-01-02T16:04:05.5+01:00" , "new":{"a":[1,"}",{}]},"n":null,"path":"/\u00fc","status": 200 ,"decision":"pondered"}`))
	if want := (Record{Time: time.Date(2026, 1, 2, 15, 4, 5, 5e8, time.UTC), Path: "/ü", Status: 200}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// FuzzParseJSON checks that no line stops the parser, that its results equal those of encoding/json, and that its records
// can be written and read again.
func FuzzParseJSON(f *testing.F) {
	r := full()
	f.Add(string(AppendJSON(nil, &r, true)))
	f.Add(`{"time":"2026-01-02T15:04:05Z","path":"/\ud83d\ude00","x":[{"a":"]"}],"status":-1}`)
	f.Fuzz(func(t *testing.T, line string) {
		var r Record
		if ParseJSON(line, &r) == nil && r.Time.Year() >= 0 && r.Time.Year() < 10_000 && (r.Path != "" || r.Method != "") {
			r.Time = r.Time.Truncate(time.Microsecond)
			r.Client = r.Client.WithZone("")
			first := AppendJSON(nil, &r, true)
			checkLine(t, first, true)
			again := one(t, first)
			if twice := AppendJSON(nil, &again, true); !bytes.Equal(first, twice) {
				t.Fatalf("first  %ssecond %s", first, twice)
			}
		}
		sameAsStandard(t, line)
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
	if ParseJSON(line, &got) == nil && (got.Path != strings.ToValidUTF8(want.Path, "") && got.Path != want.Path || got.Status != want.Status) {
		t.Fatalf("got %+v, encoding/json has %+v", got, want)
	}
}
