package main

import (
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// eachCommand calls do with every command of the tree and its name as words.
func eachCommand(do func(c *cobra.Command, words []string)) {
	var walk func(c *cobra.Command, words []string)
	walk = func(c *cobra.Command, words []string) {
		do(c, words)
		for _, sub := range c.Commands() {
			walk(sub, append(words[:len(words):len(words)], sub.Name()))
		}
	}
	walk(rootCommand(io.Discard, io.Discard), nil)
}

// Wrong usage of any command exits with 2, and prints one error that says what to write, and nothing on standard output.
func TestWrongUse(t *testing.T) {
	teaches := regexp.MustCompile(`did you mean|--help|write |say |its commands are`)
	wrong := func(c *cobra.Command, words []string, more ...string) {
		t.Helper()
		args := append(words[:len(words):len(words)], more...)
		code, out, err := sluiceRun(t, args...)
		if code != term.ExitWrong || out != "" || !strings.HasPrefix(err, "sluice: ") || !teaches.MatchString(err) {
			t.Errorf("sluice %s: exit %d, standard output %q, error %s", strings.Join(args, " "), code, out, err)
		}
	}
	eachCommand(func(c *cobra.Command, words []string) {
		wrong(c, words, "--nosuch")
		wrong(c, words, "-9")
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			misspelt := "--" + f.Name[:1] + "x" + f.Name[1:]
			if _, _, err := sluiceRun(t, append(words[:len(words):len(words)], misspelt)...); len(f.Name) > 4 && !strings.Contains(err, "did you mean --"+f.Name+"?") {
				t.Errorf("sluice %s %s: error %s", strings.Join(words, " "), misspelt, err)
			}
		})
		if c.HasSubCommands() {
			wrong(c, words, "nosuch")
			wrong(c, words, "nosuch", "--nosuch")
		}
		if !strings.Contains(c.Use, "...") && c.Name() != "help" {
			wrong(c, words, "/nosuch", "/nosuch", "/nosuch", "/nosuch")
		}
	})
	for line, want := range map[string]string{
		"servr":           `unknown command "servr" for "sluice": did you mean "serve"?`,
		"nosuch":          "sluice --help lists its commands",
		"status --rulse":  "unknown flag --rulse: did you mean --rules?",
		"status --nosuch": "unknown flag --nosuch: sluice status --help lists its flags",
		"status -9":       "unknown flag -9",
		"queue list -n x": "-n, --limit",
	} {
		if _, _, err := sluiceRun(t, strings.Fields(line)...); !strings.Contains(err, want) {
			t.Errorf("sluice %s: error %s, want %s", line, err, want)
		}
	}
}

// All flags for durations accept the format of rule files, including days and weeks.
func TestDurationsInDays(t *testing.T) {
	n := 0
	eachCommand(func(c *cobra.Command, words []string) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			n++
			for text, want := range map[string]time.Duration{"1d": 24 * time.Hour, "2w": 14 * 24 * time.Hour, "1d12h": 36 * time.Hour, "90s": 90 * time.Second} {
				if err := f.Value.Set(text); err != nil || f.Value.String() != term.Duration(want) {
					t.Errorf("sluice %s --%s %s is %s, %v", strings.Join(words, " "), f.Name, text, f.Value, err)
				}
			}
			if err := f.Value.Set("1x"); err == nil || !strings.Contains(err.Error(), "7d") {
				t.Errorf("sluice %s --%s 1x: %v", strings.Join(words, " "), f.Name, err)
			}
		})
	})
	if n < 5 {
		t.Errorf("only %d flags take a duration", n)
	}
}
