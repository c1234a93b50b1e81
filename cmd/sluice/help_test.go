package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// headless matches texts that begin in the middle of a sentence: with a preposition, a relative or a question word. Help texts are
// imperatives or noun phrases instead.
var headless = regexp.MustCompile(`(?i)^(about|above|after|as|at|before|below|beside|between|by|for|from|in|into|like|of|on|over|since|so|than|through|to|under|` +
	`until|with|within|without|that|those|what|when|where|whether|which|who|whom|whose|how|why|it|is|are|has)\b`)

// vague matches words that name no thing of the program.
var vague = regexp.MustCompile(`(?i)\b(anybody|everybody|nobody|somebody|whoever|whom)\b`)

// Imperatives or noun phrases describe every command and every flag, and every command has a description and an example.
func TestHelpTexts(t *testing.T) {
	flags := 0
	eachCommand(func(c *cobra.Command, words []string) {
		name := "sluice " + strings.Join(words, " ")
		if c.Short == "" || headless.MatchString(c.Short) || strings.ToUpper(c.Short[:1]) != c.Short[:1] || strings.HasSuffix(c.Short, ".") || len(c.Short) > 80 {
			t.Errorf("%s: the short description %q must be an imperative or a noun phrase of at most 80 characters, without a full stop", name, c.Short)
		}
		long := strings.TrimSpace(c.Long)
		if long == "" || headless.MatchString(long) || strings.ToUpper(long[:1]) != long[:1] {
			t.Errorf("%s: the long description must begin with an imperative or a subject: %.60q", name, long)
		}
		if found := vague.FindString(c.Short + c.Long + c.Example); found != "" {
			t.Errorf("%s: %q: name the client, the key or the operator", name, found)
		}
		if !strings.HasPrefix(c.Example, "  ") || !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s: no example in %q", name, c.Example)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			flags++
			kind, _ := pflag.UnquoteUsage(f)
			if strings.Contains(kind, "Array") || f.DefValue == "0s" {
				t.Errorf("%s --%s: the help shows the type %q and the default %q", name, f.Name, kind, f.DefValue)
			}
			if f.Usage == "" || headless.MatchString(f.Usage) || vague.MatchString(f.Usage) || strings.HasSuffix(f.Usage, ".") {
				t.Errorf("%s --%s: the description %q must be an imperative or a noun phrase, without a full stop", name, f.Name, f.Usage)
			}
		})
	})
	if flags < 100 {
		t.Errorf("only %d flags were checked", flags)
	}
}
