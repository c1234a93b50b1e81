package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the output of the commands to testdata/*.txt")

// Each testdata/*.txt is a transcript: commands after a $, their output and their exit code. The commands run in testdata.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			full, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir("testdata")
			got := transcript(t, string(want))
			if *update {
				if err := os.WriteFile(full, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			} else if got != string(want) {
				t.Errorf("%s differs; go test -update writes the new output:\n%s", file, difference(string(want), got))
			}
		})
	}
}

// transcript runs the commands of a transcript and returns the new transcript.
func transcript(t *testing.T, old string) string {
	var b strings.Builder
	for line := range strings.Lines(old) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "# ") && !strings.Contains(b.String(), "$ ") {
			fmt.Fprintln(&b, line)
			continue
		}
		command, ok := strings.CutPrefix(line, "$ sluice ")
		if !ok {
			continue
		}
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), words(t, command), &stdout, &stderr)
		fmt.Fprintf(&b, "%s\n%s", line, timeless(stdout.String()))
		if stderr.Len() > 0 {
			fmt.Fprintf(&b, "[stderr]\n%s", timeless(stderr.String()))
		}
		fmt.Fprintf(&b, "[exit %d]\n\n", code)
	}
	return b.String()
}

var (
	took     = regexp.MustCompile(`\b\d+\.\d{3}s\b`)
	tookJSON = regexp.MustCompile(`("elapsed_seconds": )[0-9.e-]+`)
	madeKey  = regexp.MustCompile(`slk_[a-z2-7]{52}|\bk-[0-9a-f]{8}\b|sha256:[0-9a-f]{64}`)
)

// timeless replaces elapsed times and random keys, which differ in each run.
func timeless(s string) string {
	s = madeKey.ReplaceAllStringFunc(s, func(k string) string { return k[:strings.IndexAny(k, "_-:")+1] + "…" })
	return tookJSON.ReplaceAllString(took.ReplaceAllString(s, "0.000s"), "${1}0")
}

// words splits a command line at spaces outside single quotes.
func words(t *testing.T, s string) []string {
	var all []string
	for i, part := range strings.Split(s, "'") {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	if strings.Count(s, "'")%2 != 0 {
		t.Fatalf("unclosed quote: %s", s)
	}
	return all
}

// difference returns the first line that differs.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range w {
		if i >= len(g) || w[i] != g[i] {
			line := "(nothing)"
			if i < len(g) {
				line = g[i]
			}
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, w[i], line)
		}
	}
	return "the output has additional lines"
}
