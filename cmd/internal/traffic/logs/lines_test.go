package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
)

// written returns the lines that the gateway writes for the records.
func written(t interface {
	Helper()
	Fatal(...any)
}, format accesslog.Format, all ...accesslog.Record,
) string {
	t.Helper()
	var b bytes.Buffer
	l, err := accesslog.Open(accesslog.Config{Lines: logwriter.Config{Output: &b, Buffer: 1 << 30}, Format: format, Query: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		l.Write(&all[i])
	}
	if err := l.Close(); err != nil || l.Dropped() > 0 {
		t.Fatal(err, l.Dropped())
	}
	return b.String()
}

// opened opens a log.
func opened(text string, o Options) (*Merged, error) {
	return OpenAll([]Source{{Name: "log", Reader: strings.NewReader(text)}}, o)
}

// read returns the copies of all requests of logs.
func read(t interface {
	Helper()
	Fatalf(string, ...any)
}, o Options, texts ...string,
) ([]Entry, *Merged) {
	t.Helper()
	var from []Source
	for i, text := range texts {
		from = append(from, Source{Name: fmt.Sprint("log", i), Reader: strings.NewReader(text)})
	}
	m, err := OpenAll(from, o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	var all []Entry
	for {
		e, err := m.Next()
		if err != nil {
			t.Fatalf("%v", err)
		}
		if e == nil {
			return all, m
		}
		all = append(all, *e)
	}
}

// Invalid lines are counted and the first are returned; all others are read.
func TestBadLines(t *testing.T) {
	gateway := written(t, accesslog.JSON, accesslog.Record{Time: time.Unix(1, 0), Path: "/"})
	combined := `192.0.2.1 - - [22/Jan/2019:03:56:14 +0330] "GET / HTTP/1.1" 200 5 "-" "-"` + "\n"
	for _, c := range []struct {
		good string
		bad  []string
	}{
		{gateway, []string{
			"hello", `{"time":"2026-01-02T15:04:05Z"}`, `{"path":"/"}`, `{"time":"yesterday","path":"/"}`, `{"time":"2026-01-02T15:04:05Z","path":"/"`,
			`{"time":"2026-01-02T15:04:05Z","path":"/","status":"200x}`, `{"time":"2026-01-02T15:04:05Z","path":"/","status":x}`, `{}}`, `{"a" 1}`, `{"a":1 "b":2}`,
			`{"time":"0001-01-02T15:04:05Z","path":"/"}`, `{"time":"` + strings.Repeat("x", 2*MaxLine), strings.Repeat(`{"a":`, 10_000), "torn",
		}},
		{combined, []string{
			"hello", "{}", `192.0.2.1 - - [30/Feb/2026 "GET / HTTP/1.1" 200 5`, `192.0.2.1 - - [22/Jan/2019:03:56:14 +0330] "\x16\x03\x01" 400 5`,
			`192.0.2.1 - - [22/Jan/2019:03:56:14 +0330] "GET / HTTP/1.1" ok 5`, `192.0.2.1 - - [22/Jan/2019:03:56:14 +0330] "GET / HTTP/1.1`,
			`192.0.2.1 - - [22/Jan/2019:25:56:14 +0330] "GET / HTTP/1.1" 200 5`, `192.0.2.1 - - [22/jan/2019:23:56:14 +0330] "GET / HTTP/1.1" 200 5`,
			`192.0.2.1 - - [31/Feb/2019:13:56:14 +0330] "GET / HTTP/1.1" 200 5`,
			`192.0.2.1 - - [22/Jan/9019:13:56:14 +0330] "GET / HTTP/1.1" 200 5`, strings.Repeat("x", 3*MaxLine), "torn",
		}},
	} {
		var log strings.Builder
		for _, line := range c.bad {
			log.WriteString(c.good + line + "\n\n")
		}
		all, m := read(t, Options{}, strings.TrimRight(log.String(), "\n"))
		bad, faults := m.Logs[0].Errors()
		if len(all) != len(c.bad) || bad != len(c.bad) || m.Logs[0].Lines() != 3*len(c.bad)-1 {
			t.Errorf("%d valid and %d invalid of %d, %d lines", len(all), bad, len(c.bad), m.Logs[0].Lines())
		}
		if len(faults) != keptFaults || faults[1].Line != 5 || faults[1].Text != c.bad[1] {
			t.Errorf("%+v", faults)
		}
	}
}

// Garbage before the first valid line, however much, does not prevent the detection of the format.
func TestGarbageFirst(t *testing.T) {
	good := `192.0.2.1 - - [22/Jan/2019:03:56:14 +0330] "GET / HTTP/1.1" 200 5` + "\n"
	for _, garbage := range []string{strings.Repeat("x\n", 10*detectLines), strings.Repeat("x", 3*MaxLine) + "\n", strings.Repeat(strings.Repeat("y", MaxLine/2)+"\n", 20)} {
		all, m := read(t, Options{}, garbage+good)
		bad, faults := m.Logs[0].Errors()
		if len(all) != 1 || bad != strings.Count(garbage, "\n") || faults[0].Line != 1 {
			t.Errorf("%d requests, %d invalid lines: %.200v", len(all), bad, faults)
		}
	}
}

// A log without a valid line is an error with the formats and the flags.
func TestNoFormat(t *testing.T) {
	for _, c := range []struct {
		text, want string
		o          Options
	}{
		{"nothing\n", "no line has a supported format (tried sluice, ", Options{}},
		{"nothing\n", `log: no line has a supported format (tried sluice, caddy, traefik-json, envoy-json, nginx-json, json, alb, envoy, istio, traefik, common, combined, csv): write --format NAME, or --columns time=COLUMN,… for CSV and JSON; line 1: "nothing"`, Options{}},
		{"nothing\n", "log: no line is valid in format alb; line 1: not a line such as http 2026", Options{Format: "alb"}},
		{"a,b\n1,2\n", `no column is called time, timestamp or similar: write --columns time=COLUMN; columns are ["a" "b"]`, Options{Format: "csv"}},
		{"a,b\n1,2\n", `no column "c": columns are ["a" "b"]`, Options{Format: "csv", Columns: "time=c"}},
		{"a,b\n1,2\n", `unknown attribute: use one of time, start, duration,`, Options{Columns: "tim=a"}},
		{"a,b\n1,2\n", `write ATTRIBUTE=COLUMN`, Options{Columns: "time"}},
		{"a,b\n1,2\n", `time is given twice`, Options{Columns: "time=a,time=b"}},
		{"a,b\n1,2\n", `format combined has fixed fields: use --columns with --format csv or json`, Options{Format: "combined", Columns: "time=a"}},
		{"", `format "x" is unknown: use one of sluice,`, Options{Format: "x"}},
		{"\x1f\x8bno gzip", "log: ", Options{}},
		{"BZh91AY", "log: bzip2 is not supported", Options{}},
		{"\xfd7zXZ\x00", "log: xz is not supported", Options{}},
	} {
		m, err := opened(c.text, c.o)
		if err == nil {
			_, err = m.Next()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q with %+v:\n got %v\nwant %s", c.text, c.o, err, c.want)
		}
	}
	if all, m := read(t, Options{}, "", "\n\r\n"); len(all) > 0 || m.Logs[0].Format() != "" {
		t.Errorf("%d requests in empty logs", len(all))
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, os.ErrPermission }

func TestReadError(t *testing.T) {
	good := strings.Repeat(`192.0.2.1 - - [22/Jan/2019:03:56:14 +0330] "GET / HTTP/1.1" 200 5`+"\n", 2*detectLines)
	for _, before := range []string{"", "half a line", strings.Repeat("x", 2*MaxLine), good} {
		m, err := OpenAll([]Source{{Name: "log", Reader: io.MultiReader(strings.NewReader(before), failing{})}}, Options{})
		if err == nil {
			_, err = m.Next()
		}
		if !errors.Is(err, os.ErrPermission) || !strings.HasPrefix(err.Error(), "log: ") {
			t.Errorf("after %.20q: %v", before, err)
		}
	}
}
