package logs

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
)

// docs contains an example of each format and its result.
const docs = "../../../../docs/traffic-logs.md"

// The examples of the documentation are read as it states, and each format has one.
func TestDocumentedFormats(t *testing.T) {
	page, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{"sluice": false}
	for _, name := range FormatNames() {
		missing[name] = name != "sluice"
	}
	for i, block := range strings.Split(string(page), "```text\n") {
		if i == 0 {
			continue
		}
		block, _, _ = strings.Cut(block, "```")
		for example := range strings.SplitSeq(strings.TrimSpace(block), "\n\n") {
			log, want, _ := strings.Cut(example, "\n=> ")
			missing[example1(t, log, want)] = false
		}
	}
	for name, none := range missing {
		if none {
			t.Errorf("%s has no example of format %s", docs, name)
		}
	}
}

// example1 checks one example and returns its format. The result may begin with columns, which are given, and end with
// headers, fields and costs, which are looked up.
func example1(t *testing.T, log, want string) string {
	t.Helper()
	var o Options
	prefix := ""
	if rest, ok := strings.CutPrefix(want, "columns="); ok {
		o.Columns, want, _ = strings.Cut(rest, " ")
		prefix = "columns=" + o.Columns + " "
	}
	m, err := opened(log+"\n", o)
	if err != nil {
		t.Error(err)
		return ""
	}
	e, err := m.Next()
	if err != nil || e == nil {
		t.Errorf("%s: %v", log, err)
		return ""
	}
	got := prefix + shown(e)
	for _, name := range []string{"header:X-Forwarded-For", "header:X-Api-Key", "field:tenant"} {
		key, err := ParseKey(name)
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := key(e); ok {
			got += fmt.Sprintf(" %s=%q", name, v)
		}
	}
	const cost = "field:ContextTokens+GeneratedTokens"
	if n, ok := e.Cost(cost); ok {
		got += fmt.Sprintf(" cost:%s=%d", cost, n)
	}
	if got != prefix+want {
		t.Errorf("%s\n got %s\nwant %s", log, got, prefix+want)
	}
	if next, err := m.Next(); next != nil || err != nil {
		t.Errorf("%s: a second request, %v", log, err)
	}
	return m.Logs[0].Format()
}

// shown formats an entry as the documentation does.
func shown(e *Entry) string {
	r := &e.Record
	var b strings.Builder
	fmt.Fprintf(&b, "format=%s start=%s", e.log.Format(), r.Time.Format("2006-01-02T15:04:05.000000Z07:00"))
	add := func(name, value string) {
		if value != "" && value != "0" && value != "0s" {
			fmt.Fprintf(&b, " %s=%s", name, value)
		}
	}
	if r.Client.IsValid() {
		add("ip", r.Client.String())
	}
	add("user", r.User)
	add("host", r.Host)
	if target := r.Path; r.Method != "" || target != "" {
		if r.Query != "" {
			target += "?" + r.Query
		}
		add("request", fmt.Sprintf("%q", r.Method+" "+target))
	}
	add("status", fmt.Sprint(r.Status))
	add("duration", r.Duration.String())
	add("bytes_in", fmt.Sprint(r.BytesIn))
	add("bytes_out", fmt.Sprint(r.BytesOut))
	if r.UserAgent != "" {
		add("user_agent", fmt.Sprintf("%q", r.UserAgent))
	}
	return b.String()
}

// A line of the gateway has the format sluice, also among others, and its time is the start.
func TestGatewayFormat(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 1000, time.UTC)
	all, m := read(t, Options{}, written(t, accesslog.JSON, accesslog.Record{Time: at, Duration: time.Second, Method: "GET", Path: "/"}))
	if len(all) != 1 || !all[0].Record.Time.Equal(at) || m.Logs[0].Format() != "sluice" || m.Logs[0].Resolution() != time.Microsecond {
		t.Errorf("%+v of %s", all, m.Logs[0].Format())
	}
}
