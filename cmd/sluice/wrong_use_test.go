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
		"queue list -n x": `-n "x": write a number from 1 to 1000`,

		"take --cost abc /":      `--cost "abc": write a number from 1 to 2^50`,
		"take --cost 1e3 /":      `--cost "1e3": write a number`,
		"top --watch=x":          `-w "x": write --watch or --watch=false`,
		"bench --requests 1e9 x": `-n "1e9": write a whole number`,
		"bench --rate x x":       `--rate "x": write a number`,
		"bench --seed -1 x":      "--seed -1: write a whole number of at least 0",
		"password --cost 4":      "--cost 4: write a number from 10 to 14",
		"top --interval 1x":      `--interval "1x": write a duration`,
		"status -o xml":          `-o "xml": write -o text or -o json`,
		"top -n":                 "-n needs a value",
		"status --admin x":       "unknown flag --admin: renamed: write --admin-url",
		"take --service x /":     "renamed: write --service-url",
		"take --ca x /":          "renamed: write --tls-ca",
		"status --cert x":        "renamed: write --tls-cert",
		"status --key x":         "renamed: write --tls-key",
		"top --near":             "renamed: write --near-limit",
		"queue list --after 1":   "renamed: write --page-token",
		"top --number 3":         "renamed: write --limit",
		"watch --number 3":       "renamed: write --intervals",
		"explain --matching /":   "renamed: write --only-matching",
		"bench --callers 3 x":    "renamed: write --concurrency",
		"bench --cert x x":       "unknown flag --cert: sluice bench --help lists its flags",
		"bench --thr x x":        "did you mean --threshold?",
		"queue replay x":         `unknown command "replay" for "sluice queue": renamed: write sluice queue requeue`,
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

// Variables with their old names are errors, because the command would act on another service. A new name takes precedence.
func TestRenamedVariables(t *testing.T) {
	for old, test := range map[string]struct{ line, want string }{
		"SLUICE_ADMIN":   {"status", "SLUICE_ADMIN: renamed: set SLUICE_ADMIN_URL"},
		"SLUICE_SERVICE": {"take /", "SLUICE_SERVICE: renamed: set SLUICE_SERVICE_URL"},
		"SLUICE_CA":      {"top", "SLUICE_CA: renamed: set SLUICE_TLS_CA"},
		"SLUICE_CERT":    {"queue list", "SLUICE_CERT: renamed: set SLUICE_TLS_CERT"},
		"SLUICE_KEY":     {"explain --live /", "SLUICE_KEY: renamed: set SLUICE_TLS_KEY"},
	} {
		t.Run(old, func(t *testing.T) {
			t.Setenv(old, "x")
			t.Setenv("SLUICE_ADMIN_URL", "")
			if code, _, err := sluiceRun(t, strings.Fields(test.line)...); code != term.ExitWrong || !strings.Contains(err, test.want) {
				t.Errorf("sluice %s: exit %d, %s; want %q", test.line, code, err, test.want)
			}
		})
	}
	t.Setenv("SLUICE_SERVICE", "x") // not a variable of this command
	t.Setenv("SLUICE_ADMIN", "x")
	t.Setenv("SLUICE_ADMIN_URL", "ftp://x")
	if _, _, err := sluiceRun(t, "status"); !strings.Contains(err, `"ftp://x" is not a valid URL`) {
		t.Errorf("the old names of other variables are rejected: %s", err)
	}
}
