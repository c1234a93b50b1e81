package jsonbody

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// A body of exactly the maximum size is read, one more byte is an error, and so is the error of an earlier http.MaxBytesReader.
func TestRead(t *testing.T) {
	text := strings.Repeat("x", 5000)
	for name, tt := range map[string]struct {
		body    io.Reader
		maximum int
		want    error
	}{
		"whole":       {strings.NewReader(text), 5000, nil},
		"by bytes":    {iotest.OneByteReader(strings.NewReader(text)), 5000, nil},
		"end at once": {iotest.DataErrReader(strings.NewReader(text)), 5000, nil},
		"too large":   {strings.NewReader(text), 4999, ErrTooLarge},
		"bounded":     {http.MaxBytesReader(nil, io.NopCloser(strings.NewReader(text)), 10), 5000, ErrTooLarge},
		"broken":      {io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF)), 5000, ErrUnreadable},
	} {
		b, err := Read(tt.body, nil, tt.maximum)
		if !errors.Is(err, tt.want) || err == nil && string(b) != text {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

// The buffer of a body is reused for the next one.
func TestReadReuses(t *testing.T) {
	first, err := Read(strings.NewReader("first"), nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Read(strings.NewReader("next"), first, 10)
	if err != nil || string(second) != "next" || &second[0] != &first[0] {
		t.Errorf("%q, %v", second, err)
	}
}

// Each error names the field, the value and what to write instead, and no type of Go.
func TestDecode(t *testing.T) {
	type entry struct {
		Key string `json:"key"`
	}
	type embedded struct {
		B string `json:"b,omitempty"`
	}
	type message struct {
		embedded
		A       int64             `json:"a"`
		Flag    bool              `json:"flag"`
		List    []string          `json:"list"`
		Entries [][]entry         `json:"entries"`
		Map     map[string]string `json:"map"`
		Object  *entry            `json:"object"`
		Hidden  string            `json:"-"`
	}
	for body, want := range map[string]string{
		`{"a": 1}`: "",
		` {"b": "x", "a": -1, "flag": true, "list": ["x"], "entries": [[{"key": "k"}], []], "map": {"x": "y"}, "object": {"key": "é"}} `: "",

		`{"c": 1}`:                   `unknown field "c": the fields are b, a, flag, list, entries, map, object`,
		`{"A": 1}`:                   `unknown field "A": did you mean "a"?`,
		`{"Hidden": "x"}`:            `unknown field "Hidden"`,
		`{"a": 1, "a": 2}`:           "a: given twice: remove one",
		`{"map": {"x":"1","x":"2"}}`: "map: x: given twice: remove one",
		`{"a": 1} {}`:                "unexpected data after the object at byte 9",
		" \n":                        "is empty: send a JSON object; docs/admin-api.md",
		"{\"a\": \xff}":              "not UTF-8",
		`{"a": "x"}`:                 "a: found a string at byte 6: write a whole number",
		`{"a": 1.5}`:                 "a: 1.5 is not a whole number",
		`{"b": 3}`:                   "b: found a number at byte 6: write a string, in double quotes",
		`{"b": null}`:                "b: null is not allowed: write a string, in double quotes, or leave it out",
		`{"flag": 1}`:                "flag: found a number at byte 9: write true or false",
		`{"list": "x"}`:              "list: found a string at byte 9: write a list",
		`{"list": [1]}`:              "list[0]: found a number at byte 10: write a string",
		`{"entries": [[{"k": 1}]]}`:  `entries[0][0]: unknown field "k": the fields are key`,
		`{"object": []}`:             "object: found a list at byte 11: write an object",
		`[]`:                         "found a list at byte 0: write an object",
		`x`:                          "found something that is not JSON at byte 0",
		`{"a": 1`:                    "the body ends at byte 7",
		`{"b": "x`:                   "b: the body ends at byte 8",
		`{"a": x}`:                   "a: found something that is not JSON at byte 6",
		`{a: 1}`:                     "at byte 1",
		`{`:                          "the body ends at byte 1",
	} {
		var to message
		err := Decode([]byte(body), &to)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", body, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "Go ") {
			t.Errorf("%q: the error speaks of Go: %v", body, err)
		}
	}
}

// Everything that Decode accepts, encoding/json accepts with the same result.
func FuzzDecode(f *testing.F) {
	type message struct {
		A    int64             `json:"a"`
		List [][]string        `json:"list"`
		Map  map[string]string `json:"map"`
	}
	f.Add(`{"a": 1, "list": [["x"]], "map": {"x": "y"}}`)
	f.Add(`{"a": 1,, "list": [`)
	f.Fuzz(func(t *testing.T, body string) {
		var got, want message
		if Decode([]byte(body), &got) != nil {
			return
		}
		if err := json.Unmarshal([]byte(body), &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v, %v", body, got, want, err)
		}
	})
}
