package jsonline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"testing"
	"unicode/utf8"
)

// FuzzScanner compares the members of an object with encoding/json, for lines that it accepts. No line stops the scanner.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{`{}`, ` {"a":1, "b" : "x\n" ,"c":[1,"]",{"d":null}],"e":{"f":true}}`, `{"a":1}x`, `{"a"}`, `{`, `{"\ud83d\ude00":"ü"}`, `[1]`, `{"a":[}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		got := map[string]string{}
		err := walk(New(line), "", got, 0)
		if errors.Is(err, errTwice) || !utf8.ValidString(line) {
			return // encoding/json replaces earlier values and invalid text
		}
		var want map[string]any
		d := json.NewDecoder(bytes.NewReader([]byte(line)))
		d.UseNumber()
		if d.Decode(&want) != nil || want == nil || !json.Valid([]byte(line)) {
			return
		}
		flat := map[string]string{}
		flatten("", want, flat)
		if err != nil || !maps.Equal(got, flat) {
			t.Errorf("%q: %v\n got %q\nwant %q", line, err, got, flat)
		}
	})
}

var errTwice = errors.New("a name occurs twice")

func walk(s *Scanner, prefix string, all map[string]string, depth int) error {
	err := s.Object(func(name string) error {
		if _, twice := all[prefix+name]; twice {
			return errTwice
		}
		all[prefix+name] = ""
		if s.Next() == '{' && depth < 100 {
			return walk(s, prefix+name+"\x00", all, depth+1)
		}
		if s.Next() == '[' || s.Next() == '{' {
			_, ok := s.Raw()
			return check(ok)
		}
		v, ok := s.Scalar()
		all[prefix+name] = v
		return check(ok)
	})
	if err == nil && depth == 0 {
		err = s.End()
	}
	return err
}

func check(ok bool) error {
	if !ok {
		return ErrObject
	}
	return nil
}

func flatten(prefix string, from map[string]any, all map[string]string) {
	for name, v := range from {
		switch v := v.(type) {
		case map[string]any:
			all[prefix+name] = ""
			flatten(prefix+name+"\x00", v, all)
		case []any:
			all[prefix+name] = ""
		case nil:
			all[prefix+name] = "null"
		default:
			all[prefix+name] = fmt.Sprint(v)
		}
	}
}
