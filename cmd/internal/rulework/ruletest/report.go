package ruletest

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/fileerrors"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const Format = `  tests:
    - name: two posts a second
      requests:
        - {request: POST /posts, headers: {X-User: ada}, times: 3, expect: {allow: 2, deny: 1}}
        - {at: 600ms, request: POST /posts, headers: {X-User: ada}, expect: allow, remaining: 0}
`

// Broken returns an error that lists the errors in test files and in the tested rules.
func Broken(err error) error {
	found, _ := fileerrors.Split(err)
	if len(found) == 0 {
		return err
	}
	var lines []string
	for _, e := range fileerrors.Each(err) {
		lines = append(lines, "  "+term.Printable(e.Error()))
	}
	return fmt.Errorf("no tests were run, because there are errors in the files:\n%s", strings.Join(lines, "\n"))
}

// Report is the output of test. Its fields are stable for programs.
type Report struct {
	OK      bool         `json:"ok"`
	Passed  int          `json:"passed"`
	Failed  int          `json:"failed"`
	Files   []fileReport `json:"files"`
	elapsed time.Duration
}

type fileReport struct {
	File    string       `json:"file"`
	OK      bool         `json:"ok"`
	Seconds float64      `json:"elapsed_seconds"`
	Tests   []testReport `json:"tests"`
}

type testReport struct {
	Name     string          `json:"name"`
	Line     int             `json:"line"`
	OK       bool            `json:"ok"`
	Requests int             `json:"requests"`
	Virtual  float64         `json:"virtual_seconds"` // how far the test's clock went
	Seconds  float64         `json:"elapsed_seconds"`
	Failures []failureReport `json:"failures"`
}

type failureReport struct {
	File    string   `json:"file"`
	Line    int      `json:"line"`
	Column  int      `json:"column"`
	Request string   `json:"request"`
	Field   string   `json:"field"`
	Want    string   `json:"want"`
	Got     string   `json:"got"`
	Why     []string `json:"reasons"`
}

func RunFiles(ctx context.Context, files []*File, wanted *regexp.Regexp) (*Report, error) {
	report := &Report{Files: []fileReport{}}
	began := time.Now()
	for _, f := range files {
		results, err := f.Run(ctx, wanted.MatchString)
		if err != nil {
			return nil, err
		}
		if len(results) > 0 {
			report.add(f.Name, results)
		}
	}
	report.OK = report.Failed == 0
	report.elapsed = time.Since(began)
	if report.Passed+report.Failed == 0 {
		return nil, fmt.Errorf("no test has a name that matches --run %q", wanted)
	}
	return report, nil
}

func (r *Report) add(file string, results []Result) {
	tested := fileReport{File: file, OK: true, Tests: []testReport{}}
	for i := range results {
		result := &results[i]
		t := testReport{
			Name: result.Test.Name, Line: result.Test.At.Line, OK: result.Passed(), Requests: result.Requests,
			Virtual: result.Virtual.Seconds(), Seconds: result.Elapsed.Seconds(), Failures: []failureReport{},
		}
		for _, f := range result.Failures {
			t.Failures = append(t.Failures, failureReport{
				File: f.At.File, Line: f.At.Line, Column: f.At.Column,
				Request: f.Request, Field: f.Field, Want: f.Want, Got: f.Got, Why: append([]string{}, f.Why...),
			})
		}
		if t.OK {
			r.Passed++
		} else {
			r.Failed++
			tested.OK = false
		}
		tested.Seconds += t.Seconds
		tested.Tests = append(tested.Tests, t)
	}
	r.Files = append(r.Files, tested)
}

func (r *Report) WriteText(w io.Writer, verbose bool) error {
	s := term.NewStyle(w)
	var b strings.Builder
	for i := range r.Files {
		f := &r.Files[i]
		for j := range f.Tests {
			if t := &f.Tests[j]; !t.OK || verbose {
				t.write(&b, s)
			}
		}
		word := s.Green("ok  ")
		if !f.OK {
			word = s.Red("FAIL")
		}
		fmt.Fprintf(&b, "%s  %s  %s  %.3fs\n", word, term.Printable(f.File), term.Count(len(f.Tests), "test"), f.Seconds)
	}
	if r.Failed > 0 {
		fmt.Fprintf(&b, "%s: %d of %s failed\n", s.Red("FAIL"), r.Failed, term.Count(r.Passed+r.Failed, "test"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *testReport) write(b *strings.Builder, s term.Style) {
	word := s.Green("--- PASS")
	if !t.OK {
		word = s.Red("--- FAIL")
	}
	fmt.Fprintf(b, "%s: %s (%s, virtual time %s, elapsed %.3fs)\n", word, term.Printable(t.Name), term.Count(t.Requests, "request"),
		term.Duration(time.Duration(t.Virtual*float64(time.Second)).Round(time.Microsecond)), t.Seconds)
	for i := range t.Failures {
		f := &t.Failures[i]
		where := fmt.Sprintf("%s:%d:%d", term.Printable(f.File), f.Line, f.Column)
		fmt.Fprintf(b, "    %s: %s\n", s.Bold(where), term.Printable(f.Request))
		fmt.Fprintf(b, "        want %s: %s\n", f.Field, term.Printable(f.Want))
		fmt.Fprintf(b, "        got: %s\n", term.Printable(f.Got))
		if i+1 < len(t.Failures) && t.Failures[i+1].Line == f.Line && t.Failures[i+1].Request == f.Request {
			continue // the reasons are the same, and follow the last one
		}
		for _, line := range f.Why {
			fmt.Fprintf(b, "          %s\n", s.Faint(term.Printable(line)))
		}
	}
}
