package jsonbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluiceproject/sluice/internal/suggest"
)

// Decode decodes one JSON value into to, a pointer. It is stricter than encoding/json: unknown and duplicate fields, names in
// another case, and null are errors, because their values would be ignored silently. Errors are for clients of an API.
func Decode(body []byte, to any) error {
	switch {
	case !utf8.Valid(body):
		return errors.New("the body is not UTF-8")
	case len(bytes.TrimSpace(body)) == 0:
		return errors.New("the body is empty: send a JSON object; docs/admin-api.md describes its fields")
	}
	c := &checker{body: body, d: json.NewDecoder(bytes.NewReader(body))}
	c.d.UseNumber()
	if err := c.value(reflect.TypeOf(to).Elem(), ""); err != nil {
		return err
	}
	if at := c.next(); at < len(body) {
		return fmt.Errorf("unexpected data after the object at byte %d: send one JSON object", at)
	}
	if err := json.Unmarshal(body, to); err != nil { // of a type with its own format
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// checker compares a body with a type.
type checker struct {
	body []byte
	d    *json.Decoder
}

// next returns the position of the next token.
func (c *checker) next() int {
	at := int(c.d.InputOffset())
	for at < len(c.body) && strings.IndexByte(" \t\r\n,:", c.body[at]) >= 0 {
		at++
	}
	return at
}

// token reads a token and returns its position too.
func (c *checker) token() (json.Token, int, error) {
	at := c.next()
	t, err := c.d.Token()
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return t, at, nil
	case errors.As(err, &syntax):
		return nil, at, fmt.Errorf("found something that is not JSON at byte %d", at)
	}
	return nil, at, fmt.Errorf("the body ends at byte %d: it is incomplete", len(c.body))
}

// value checks a value of type t. path is its name in errors.
func (c *checker) value(t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	token, at, err := c.token()
	if err != nil {
		return in(path, err)
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) { // checks itself
		return in(path, c.skip(token))
	}
	found := false
	switch t.Kind() {
	case reflect.Struct:
		if found = token == json.Delim('{'); found {
			return c.object(t, path)
		}
	case reflect.Map:
		if found = token == json.Delim('{'); found {
			return c.dictionary(t.Elem(), path)
		}
	case reflect.Slice:
		if found = token == json.Delim('['); found {
			return c.list(t.Elem(), path)
		}
	case reflect.String:
		_, found = token.(string)
	case reflect.Bool:
		_, found = token.(bool)
	case reflect.Int64:
		number, ok := token.(json.Number)
		if _, err := strconv.ParseInt(string(number), 10, 64); ok && err != nil {
			return in(path, fmt.Errorf("%.40s is not a whole number", number))
		}
		found = ok
	}
	if found {
		return nil
	}
	return in(path, mismatch(token, at, t))
}

// mismatch returns the error for a token that does not begin a value of type t.
func mismatch(token json.Token, at int, t reflect.Type) error {
	want := map[reflect.Kind]string{
		reflect.Struct: "an object", reflect.Map: "an object", reflect.Slice: "a list", reflect.String: "a string, in double quotes",
		reflect.Bool: "true or false", reflect.Int64: "a whole number",
	}[t.Kind()]
	found := "a number"
	switch token := token.(type) {
	case nil:
		return fmt.Errorf("null is not allowed: write %s, or leave it out", want)
	case string:
		found = "a string"
	case bool:
		found = "true or false"
	case json.Delim:
		if found = "an object"; token == '[' {
			found = "a list"
		}
	}
	return fmt.Errorf("found %s at byte %d: write %s", found, at, want)
}

// object checks the fields of an object, after its opening brace.
func (c *checker) object(t reflect.Type, path string) error {
	names, types := fields(t)
	return c.members(path, func(name string) (reflect.Type, error) {
		if of := types[name]; of != nil {
			return of, nil
		}
		known := "the fields are " + strings.Join(names, ", ")
		if len(names) == 0 {
			known = "write {} or nothing"
		}
		if best := suggest.ClosestOrLonger(name, names); best != "" {
			return nil, fmt.Errorf("unknown field %q: did you mean %q? T%s", name, best, known[1:])
		}
		return nil, fmt.Errorf("unknown field %.40q: %s", name, known)
	})
}

// dictionary checks the values of an object with any names.
func (c *checker) dictionary(of reflect.Type, path string) error {
	return c.members(path, func(string) (reflect.Type, error) { return of, nil })
}

// members checks the members of an object whose types typeOf returns.
func (c *checker) members(path string, typeOf func(name string) (reflect.Type, error)) error {
	seen := map[string]bool{}
	for c.d.More() {
		token, at, err := c.token()
		if err != nil {
			return in(path, err)
		}
		name, ok := token.(string)
		if !ok {
			return in(path, fmt.Errorf("found something that is not the name of a field at byte %d: write it in double quotes", at))
		}
		of, err := typeOf(name)
		if err == nil && seen[name] {
			err = in(name, errors.New("given twice: remove one"))
		}
		if err != nil {
			return in(path, err)
		}
		seen[name] = true
		if err := c.value(of, under(path, name)); err != nil {
			return err
		}
	}
	return c.end(path)
}

// list checks the elements of a list, after its opening bracket.
func (c *checker) list(of reflect.Type, path string) error {
	for i := 0; c.d.More(); i++ {
		if err := c.value(of, path+"["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	return c.end(path)
}

// end reads the closing bracket or brace.
func (c *checker) end(path string) error {
	_, _, err := c.token()
	return in(path, err)
}

// skip reads the rest of a value that begins with token.
func (c *checker) skip(token json.Token) error {
	depth := 0
	for {
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
		var err error
		if token, _, err = c.token(); err != nil {
			return err
		}
	}
}

// fields returns the names of the fields of a struct in order, and their types.
func fields(t reflect.Type) (names []string, types map[string]reflect.Type) {
	types = map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			more, of := fields(f.Type)
			for _, name := range more {
				names, types[name] = append(names, name), of[name]
			}
			continue
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names, types[name] = append(names, name), f.Type
		}
	}
	return names, types
}

// under returns the path of a field.
func under(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// in adds the path of a field to an error. It returns nil for nil.
func in(path string, err error) error {
	if err == nil || path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}
