package rulefile_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

var update = flag.Bool("update", false, "write the results of the transcripts")

// testCase is a set of files with the result of reading them. In a transcript it is "==== case: NAME", a file, further
// files after "==== file: NAME", and "==== result". The first file is called rules.yaml. A name that ends in "(merge)"
// sets MergeDomains.
type testCase struct {
	name    string
	sources []rulefile.File
	want    string
}

func readTranscript(t testing.TB, name string) []testCase {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var all []testCase
	for _, text := range strings.Split(string(data), "==== case: ")[1:] {
		var c testCase
		c.name, text, _ = strings.Cut(text, "\n")
		text, c.want, _ = strings.Cut(text, "==== result\n")
		file := "rules.yaml"
		for i, part := range strings.Split(text, "==== file: ") {
			if i > 0 {
				file, part, _ = strings.Cut(part, "\n")
			}
			c.sources = append(c.sources, rulefile.File{Name: file, Data: []byte(part)})
		}
		all = append(all, c)
	}
	return all
}

func (c testCase) options() rulefile.Options {
	return rulefile.Options{MergeDomains: strings.HasSuffix(c.name, "(merge)")}
}

func (c testCase) write(b *strings.Builder, result string) {
	fmt.Fprintf(b, "==== case: %s\n", c.name)
	for i, s := range c.sources {
		if i > 0 {
			fmt.Fprintf(b, "==== file: %s\n", s.Name)
		}
		b.Write(s.Data)
	}
	fmt.Fprintf(b, "==== result\n%s", result)
}

// read compiles the files, and returns the configuration or all errors.
func (c testCase) read() (rules.Config, error) {
	cfg, err := rulefile.Parse(c.options(), c.sources...)
	if err == nil {
		_, err = rules.New(cfg)
	}
	return cfg, err
}

var placed = regexp.MustCompile(`^[\w./-]+:\d+:\d+: .`)

func TestTranscripts(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatal("there are no transcripts", err)
	}
	bad := 0
	for _, name := range names {
		var out strings.Builder
		for _, c := range readTranscript(t, name) {
			cfg, err := c.read()
			result := ""
			if err != nil {
				result = err.Error() + "\n"
			} else {
				var b strings.Builder
				dump(&b, reflect.ValueOf(cfg), "")
				result = strings.TrimPrefix(b.String(), "\n")
			}
			if shouldFail := strings.HasPrefix(filepath.Base(name), "bad"); shouldFail != (err != nil) {
				t.Errorf("%s: %s: error %v", name, c.name, err)
			}
			if err != nil {
				bad++
				checkFaults(t, name+": "+c.name, err)
			}
			if result != c.want && !*update {
				t.Errorf("%s: %s: got\n%s\nwant\n%s", name, c.name, result, c.want)
			}
			c.write(&out, result)
		}
		if *update {
			if err := os.WriteFile(name, []byte(out.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if bad < 80 {
		t.Errorf("only %d bad inputs are tested", bad)
	}
}

// checkFaults checks that all errors have a position.
func checkFaults(t testing.TB, name string, err error) {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Errorf("%s: the error is not joined: %v", name, err)
		return
	}
	for _, fault := range joined.Unwrap() {
		var e *rules.Error
		if !errors.As(fault, &e) || !placed.MatchString(fault.Error()) || e.Msg == "" {
			t.Errorf("%s: an error without file, line and column: %v", name, fault)
		}
	}
}

// dump writes all values that are not zero.
func dump(b *strings.Builder, v reflect.Value, indent string) {
	switch x := v.Interface().(type) {
	case rules.Position:
		fmt.Fprintf(b, " %v\n", x)
		return
	case *time.Location, netip.Prefix, time.Duration, sluice.Algorithm, rules.OnLimit, rules.Priority:
		fmt.Fprintf(b, " %v\n", x)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		b.WriteByte('\n')
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() && !v.Field(i).IsZero() {
				b.WriteString(indent + field.Name + ":")
				dump(b, v.Field(i), indent+"  ")
			}
		}
	case reflect.Slice:
		if plain := v.Type().Elem().Kind() == reflect.String; plain || v.Len() == 0 {
			fmt.Fprintf(b, " %q\n", v.Interface())
			return
		}
		b.WriteByte('\n')
		for i := range v.Len() {
			b.WriteString(indent + "-")
			dump(b, v.Index(i), indent+"  ")
		}
	case reflect.Map:
		b.WriteByte('\n')
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			fmt.Fprintf(b, "%s%q:", indent, k.String())
			if e := v.MapIndex(k); e.Kind() == reflect.Interface {
				fmt.Fprintf(b, " %T %v\n", e.Interface(), e.Interface())
			} else {
				dump(b, e, indent+"  ")
			}
		}
	case reflect.Pointer:
		dump(b, v.Elem(), indent)
	case reflect.String:
		fmt.Fprintf(b, " %q\n", v.String())
	default:
		fmt.Fprintf(b, " %v\n", v.Interface())
	}
}
