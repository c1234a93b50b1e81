package admincli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// keyText writes whom a bucket counts for as it is written on a command line: user=ada.
func keyText(key adminmsg.Key) string { return shellWords(keyWords(key)) }

// keyWords are the arguments that [KeyPairs] reads.
func keyWords(key adminmsg.Key) []string {
	parts := make([]string, len(key))
	for i, e := range key {
		name := e.Key
		if strings.Contains(name, "=") && name[0] != '"' {
			name = strconv.Quote(name)
		}
		parts[i] = name + "=" + e.Value
	}
	return parts
}

// shellWords are words as a shell takes them.
func shellWords(all []string) string {
	out := make([]string, len(all))
	for i, word := range all {
		out[i] = term.ShellQuoted(word)
	}
	return strings.Join(out, " ")
}

// arguments are the words of a command after its name, none of which is taken for a flag.
func arguments(all []string) string {
	text := shellWords(all)
	if slices.ContainsFunc(all, func(word string) bool { return strings.HasPrefix(word, "-") }) {
		text = "-- " + text
	}
	return text
}

// bucketText names a bucket: posts-per-user user=ada.
func bucketText(rule string, key adminmsg.Key) string {
	return strings.TrimSpace(term.ShellQuoted(rule) + " " + keyText(key))
}

func WritePeeked(b *adminmsg.Peeked, w io.Writer, s term.Style) error {
	if len(b.Buckets) == 0 {
		_, err := fmt.Fprintln(w, "nothing is counted: no rule has a limit for it")
		return err
	}
	var found error
	for i := range b.Buckets {
		each := &b.Buckets[i]
		if !each.Allowed {
			found = term.ErrFindings
		}
		name := bucketText(each.Rule, each.Key)
		if each.Tier != "" {
			name += " with " + term.Printable(each.Tier)
		}
		if _, err := fmt.Fprintf(w, "%s %s: %s\n", s.Mark(each.Allowed), s.Bold(name), stateText(each)); err != nil {
			return err
		}
	}
	return found
}

// stateText says what is left of a bucket, in the words of explain.
func stateText(b *adminmsg.Bucket) string {
	if b.BlockedSeconds > 0 {
		return "blocked for another " + term.Duration(term.Seconds(b.BlockedSeconds))
	}
	if b.Source == suspended {
		return suspendedText
	}
	if b.Source == "open" || b.Source == "closed" { // which count nothing
		return fmt.Sprintf("limit %d", b.Limit) + sourceText(b.Source)
	}
	text := fmt.Sprintf("%d of %d left", b.Remaining, b.Limit)
	if !b.Allowed && b.RetryAfterSeconds > 0 {
		text += ", retry after " + term.Duration(term.Seconds(b.RetryAfterSeconds))
	}
	if b.ResetAfterSeconds > 0 {
		text += ", all of it again after " + term.Duration(term.Seconds(b.ResetAfterSeconds))
	} else {
		text += ", nothing is spent"
	}
	return text + sourceText(b.Source)
}

// What is said of a rule that is switched off. Nothing is known of what is left of it.
const (
	suspended     = "suspended"
	suspendedText = "suspended, everything is allowed"
)

// sourceText says where an answer came from if it was not the store.
func sourceText(source string) string {
	switch source {
	case "", "store":
		return ""
	case "local", "open", "closed":
		return " (the store does not answer: on_failure is " + source + ")"
	}
	return " (by " + term.Printable(source) + ")"
}

// WriteReset says which buckets were reset.
func WriteReset(b *adminmsg.Changed, w io.Writer, s term.Style) error {
	return writeChanged(b, w, s, "reset", "")
}

// WriteRuleReset says how many buckets of a rule were removed, or would be.
func WriteRuleReset(b *adminmsg.RuleWasReset, w io.Writer, s term.Style) error {
	done := "reset"
	if b.DryRun {
		done = "would reset"
	}
	count := "which the store cannot count"
	if b.Removed != nil {
		count = term.Thousands(*b.Removed) + " buckets and blocks"
	}
	_, err := fmt.Fprintf(w, "%s all keys of %s, %s\n", done, s.Bold(term.ShellQuoted(b.Rule)), count)
	return err
}

// WriteBlocked says which buckets were blocked, and for how long.
func WriteBlocked(b *adminmsg.Blocked, w io.Writer, s term.Style) error {
	until := ""
	if b.Until != nil {
		until = " until " + term.Clock(*b.Until)
	}
	return writeChanged(&b.Changed, w, s, "blocked", until)
}

// WriteUnblocked says which buckets' blocks were lifted.
func WriteUnblocked(b *adminmsg.Blocked, w io.Writer, s term.Style) error {
	return writeChanged(&b.Changed, w, s, "unblocked", "")
}

// writeChanged says what was done to which buckets.
func writeChanged(b *adminmsg.Changed, w io.Writer, s term.Style, done, more string) error {
	if len(b.Buckets) == 0 {
		_, err := fmt.Fprintf(w, "nothing is %s: no rule has a limit for it\n", done)
		return err
	}
	seen := make(map[string]bool)
	for i := range b.Buckets {
		text := bucketText(b.Buckets[i].Rule, b.Buckets[i].Key)
		if !seen[text] {
			fmt.Fprintf(w, "%s %s%s\n", done, s.Bold(text), more)
		}
		seen[text] = true
	}
	return nil
}
