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

// keyText formats a key as arguments of a command: user=ada.
func keyText(key adminmsg.Key) string { return shellWords(keyWords(key)) }

// keyWords returns the arguments from which [KeyPairs] parses key.
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

// shellWords joins words, each quoted for a shell if necessary.
func shellWords(all []string) string {
	out := make([]string, len(all))
	for i, word := range all {
		out[i] = term.ShellQuoted(word)
	}
	return strings.Join(out, " ")
}

// arguments formats the arguments of a command. It puts -- before them if one of them would be parsed as a flag.
func arguments(all []string) string {
	text := shellWords(all)
	if slices.ContainsFunc(all, func(word string) bool { return strings.HasPrefix(word, "-") }) {
		text = "-- " + text
	}
	return text
}

// bucketText formats the name of a bucket: posts-per-user user=ada.
func bucketText(rule string, key adminmsg.Key) string {
	return strings.TrimSpace(term.ShellQuoted(rule) + " " + keyText(key))
}

// WritePeeked writes the state of buckets. It returns term.ErrFindings if one of them denies.
func WritePeeked(b *adminmsg.Peeked, w io.Writer, s term.Style) error {
	if len(b.Buckets) == 0 {
		_, err := fmt.Fprintln(w, "no limit applies")
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

// stateText describes the state of a bucket as explain does.
func stateText(b *adminmsg.Bucket) string {
	if b.BlockedSeconds > 0 {
		return "blocked for another " + term.Duration(term.Seconds(b.BlockedSeconds))
	}
	if b.Source == suspended {
		return suspendedText
	}
	if b.Source == "open" || b.Source == "closed" { // neither counts
		return fmt.Sprintf("limit %d", b.Limit) + sourceText(b.Source)
	}
	text := fmt.Sprintf("%d of %d left", b.Remaining, b.Limit)
	if !b.Allowed && b.RetryAfterSeconds > 0 {
		text += ", retry after " + term.Duration(term.Seconds(b.RetryAfterSeconds))
	}
	if b.ResetAfterSeconds > 0 {
		text += ", fully reset in " + term.Duration(term.Seconds(b.ResetAfterSeconds))
	} else {
		text += ", unused"
	}
	return text + sourceText(b.Source)
}

// Source and description of a suspended rule. Its remaining quota is unknown.
const (
	suspended     = "suspended"
	suspendedText = "suspended, all requests are allowed"
)

// sourceText names the source of a decision unless it is the store.
func sourceText(source string) string {
	switch source {
	case "", "store":
		return ""
	case "local", "open", "closed":
		return " (store unavailable: on_failure is " + source + ")"
	}
	return " (source: " + term.Printable(source) + ")"
}

// WriteReset lists the buckets that were reset.
func WriteReset(b *adminmsg.Changed, w io.Writer, s term.Style) error {
	return writeChanged(b, w, s, "reset", "")
}

// WriteRuleReset writes the number of buckets and blocks of a rule that were removed or, in a dry run, would be.
func WriteRuleReset(b *adminmsg.RuleWasReset, w io.Writer, s term.Style) error {
	done := "reset"
	if b.DryRun {
		done = "would reset"
	}
	count := "number unknown"
	if b.Removed != nil {
		count = term.Thousands(*b.Removed) + " buckets and blocks"
	}
	_, err := fmt.Fprintf(w, "%s all keys of %s, %s\n", done, s.Bold(term.ShellQuoted(b.Rule)), count)
	return err
}

// WriteBlocked lists the buckets that were blocked, and the end of the block.
func WriteBlocked(b *adminmsg.Blocked, w io.Writer, s term.Style) error {
	until := ""
	if b.Until != nil {
		until = " until " + term.Clock(*b.Until)
	}
	return writeChanged(&b.Changed, w, s, "blocked", until)
}

// WriteUnblocked lists the buckets that were unblocked.
func WriteUnblocked(b *adminmsg.Blocked, w io.Writer, s term.Style) error {
	return writeChanged(&b.Changed, w, s, "unblocked", "")
}

// writeChanged lists the changed buckets, each once, with the verb done before and more after the name.
func writeChanged(b *adminmsg.Changed, w io.Writer, s term.Style, done, more string) error {
	if len(b.Buckets) == 0 {
		_, err := fmt.Fprintf(w, "nothing was %s: no limit applies\n", done)
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
