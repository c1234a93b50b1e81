package jsonbody

import (
	"errors"
	"io"
	"net/http"
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

func TestDecode(t *testing.T) {
	for body, want := range map[string]string{
		`{"a": 1}`:      "",
		`{"b": 1}`:      `unknown field "b"`,
		`{"a": 1} {}`:   "something follows",
		" \n":           "is empty",
		"{\"a\": \xff}": "not UTF-8",
		`{"a": "x"}`:    "cannot unmarshal string",
	} {
		var to struct{ A int }
		err := Decode([]byte(body), &to)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", body, err)
		}
	}
}
