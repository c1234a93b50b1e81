package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
	"github.com/sluiceproject/sluice/cmd/internal/loadgen/report"
)

const hostile = `<script>alert(1)</script>"'><img src=x>`

// results returns results of all kinds.
func results() map[string]*loadgen.Result {
	one := &loadgen.Result{Elapsed: time.Millisecond, Sum: loadgen.Point{Allowed: 1}, Points: []loadgen.Point{{At: 0, For: 0, Allowed: 1}}}
	one.Sum.Latency.Record(0)
	one.Points[0].Latency.Record(0)

	many := &loadgen.Result{
		Begun: time.Unix(1e9, 0), Elapsed: 20 * time.Second, Late: 7, Missed: 5, Cut: 3, Interrupted: true,
		Codes: map[string]int64{"OK": 5, hostile: 2}, Reasons: map[string]int64{hostile: 9},
	}
	for i := range 200 {
		p := loadgen.Point{At: time.Duration(i+1) * 100 * time.Millisecond, For: 100 * time.Millisecond}
		if i < 90 || i > 110 { // no responses for 2 s
			p.Allowed, p.Denied, p.Failed = int64(1000-i), int64(i*3), int64(i/50)
			for k := range 100 {
				p.Latency.Record(time.Duration((i+1)*(k+1)*(k+1)) * time.Microsecond)
			}
		}
		many.Sum.Allowed += p.Allowed
		many.Sum.Denied += p.Denied
		many.Sum.Failed += p.Failed
		many.Sum.Latency.Add(&p.Latency)
		many.Points = append(many.Points, p)
	}
	return map[string]*loadgen.Result{
		"nothing": {}, "one": one, "many": many,
		"refused": {Elapsed: time.Second, Sum: loadgen.Point{Failed: 10}, Points: []loadgen.Point{{At: time.Second, For: time.Second, Failed: 10}}},
	}
}

func page(t *testing.T, r *loadgen.Result) string {
	t.Helper()
	var verdicts []loadgen.Verdict
	for _, text := range []string{"p99<5ms", "errors<1%"} {
		th, err := loadgen.ParseThreshold(text)
		if err != nil {
			t.Fatal(err)
		}
		verdicts = append(verdicts, th.Check(r))
	}
	var b bytes.Buffer
	err := report.Write(&b, report.Page{Target: "http://127.0.0.1/" + hostile, How: hostile, Version: "v1", Result: r, Verdicts: verdicts})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The page uses no external resources and no scripts, for any responses of servers.
func TestPageStandsAlone(t *testing.T) {
	outside := regexp.MustCompile(`(?i)url\(|@import|expression\(`)
	for name, r := range results() {
		text := page(t, r)
		doc, err := html.Parse(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for n := range doc.Descendants() {
			if n.Type == html.TextNode && n.Parent.Data == "style" && outside.MatchString(n.Data) {
				t.Errorf("%s: the style uses an external resource", name)
			}
			if n.Type != html.ElementNode {
				continue
			}
			switch n.Data {
			case "script", "link", "img", "iframe", "object", "embed", "base", "form", "image", "use", "a":
				t.Errorf("%s: contains <%s>", name, n.Data)
			}
			for _, a := range n.Attr {
				if strings.HasPrefix(a.Key, "on") || a.Key == "href" || a.Key == "src" || a.Key == "style" || strings.Contains(a.Val, "://") {
					t.Errorf("%s: <%s %s=%q>", name, n.Data, a.Key, a.Val)
				}
			}
		}
	}
}

// Plots are well-formed and contain no NaN or infinity.
func TestPlots(t *testing.T) {
	svg := regexp.MustCompile(`(?s)<svg .*?</svg>`)
	coordinate := regexp.MustCompile(`\b(?:NaN|Inf)\b`)
	for name, want := range map[string]int{"nothing": 0, "refused": 0, "one": 4, "many": 4} {
		text := page(t, results()[name])
		plots := svg.FindAllString(text, -1)
		if len(plots) != want {
			t.Errorf("%s: %d plots, want %d", name, len(plots), want)
		}
		for _, p := range plots {
			if coordinate.MatchString(p) {
				t.Errorf("%s: %s", name, coordinate.FindString(p))
			}
			for d := xml.NewDecoder(strings.NewReader(p)); ; {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
	}
}

// The page contains thresholds, notes, errors and plots.
func TestPageSays(t *testing.T) {
	r := results()["many"]
	text := page(t, r)
	for _, want := range []string{
		"Some thresholds failed", "<code>p99&lt;5ms</code>", "Requests were sent later than scheduled: 7 late", "5 not sent",
		"The test was interrupted", "no response: &lt;script&gt;", "cut off", "2001-09-09 01:46:40 UTC",
		`class="area allowed"`, `class="area denied"`, `class="area errors"`, `class="line p99"`, `class="line latency"`, `class="bar latency"`,
		"prefers-color-scheme: dark", "9.1s, 0/s allowed",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	// The 2 s without responses are a gap in each of the four lines.
	if got := strings.Count(text, `class="line p50"`); got != 2 {
		t.Errorf("%d parts of a line, want 2", got)
	}
	if text := page(t, results()["one"]); !strings.Contains(text, "All thresholds passed") || strings.Contains(text, "later than scheduled") {
		t.Error("the page of a good run has a failed threshold or a note")
	}
}
