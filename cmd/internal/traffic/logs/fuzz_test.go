package logs

import (
	"encoding/csv"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzFormats reads any text in each format, detected or given: nothing stops the reader, requests are in order, and what it
// counts adds up.
func FuzzFormats(f *testing.F) {
	page, err := os.ReadFile(docs)
	if err != nil {
		f.Fatal(err)
	}
	for i, block := range strings.Split(string(page), "```text\n") {
		if i > 0 {
			block, _, _ = strings.Cut(block, "```")
			for n := range len(formats) + 1 {
				f.Add(byte(n), "", strings.ReplaceAll(block, "\n=>", "\n#"))
			}
		}
	}
	f.Add(byte(0), "time=1,ip=2", "1767366245,192.0.2.1\n")
	f.Add(byte(0), "time=a.b", `{"a":{"b":1767366245}}`)
	names := append([]string{""}, FormatNames()...)
	f.Fuzz(func(t *testing.T, n byte, columns, text string) {
		m, err := opened(text, Options{Format: names[int(n)%len(names)], Columns: columns})
		if err != nil {
			return
		}
		last, requests := int64(0), int64(0)
		for {
			e, err := m.Next()
			if err != nil || e == nil {
				break
			}
			if e.Micros < last || !isTime(e.Record.Time.Add(e.Record.Duration)) && e.isStart {
				t.Fatalf("%v after %d", e.Record.Time, last)
			}
			last = e.Micros
			requests++
			for _, field := range e.fields() {
				if v, ok := e.Field(field.name); !ok || len(v) > 6*len(text) {
					t.Fatalf("field %q: %q", field.name, v)
				}
			}
			_, _ = e.Header("X-Api-Key")
			_, _ = e.Cost("field:a+b")
		}
		bad, faults := m.Logs[0].Errors()
		if requests != m.Logs[0].Requests || int(requests)+bad > m.Logs[0].Lines() || len(faults) > keptFaults {
			t.Fatalf("%d requests, %d invalid of %d lines", requests, bad, m.Logs[0].Lines())
		}
	})
}

// FuzzCSV compares the values of a line with encoding/csv, for lines that it accepts.
func FuzzCSV(f *testing.F) {
	for _, s := range []string{`a,"b,c",d`, `"a""b",""`, `a,,`, `,`, `"x`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\r\n") {
			return
		}
		got := (&csvParser{separator: ','}).split(line, nil)
		want, err := csv.NewReader(strings.NewReader(line)).Read()
		if err == nil && len(want) <= maxFields && !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	})
}

// FuzzTime compares times with the standard library, for texts that it writes.
func FuzzTime(f *testing.F) {
	for _, s := range []string{
		"2026-01-02T15:04:05Z", "2026-01-02 15:04:05.1234567", "2026-01-02T15:04:05,5+07:00", "02/Jan/2026:15:04:05 +0330", "1767366245.123", "1767366245123456789",
		"2026-02-29T00:00:00Z", "1.7e9", "0.5", "31/Apr/2026:15:04:05 +0000",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseTime(s)
		if err == nil && got.Location() != time.UTC {
			t.Errorf("%q is in %v", s, got.Location())
		}
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999", clfTime} {
			want, stdErr := time.Parse(layout, s)
			if stdErr == nil && s == want.Format(layout) && (err != nil || !got.Equal(want)) {
				t.Errorf("%q: got %v, %v, want %v", s, got, err, want)
			}
		}
		if err != nil && !utf8.ValidString(err.Error()) && utf8.ValidString(s) {
			t.Errorf("%q: %v", s, err)
		}
	})
}

func TestUnixTimes(t *testing.T) {
	want := time.Date(2026, 1, 2, 15, 4, 5, 123456000, time.UTC)
	for _, s := range []string{"1767366245.123456", "1767366245123.456", "1767366245123456", "1767366245123456000", "1767366245.1234560009"} {
		if got, err := parseTime(s); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "x", "-1", "+1", "1.2.3", "0x10", "NaN", "Inf", "99999999999999999999", "1,5"} {
		if got, err := parseTime(s); err == nil {
			t.Errorf("%q is %v", s, got)
		}
	}
}
