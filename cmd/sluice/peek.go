package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// bucketCommand is a command about buckets of a running service.
func bucketCommand(use, short, long, example string, run func(c *cobra.Command, f *selectFlags, o *term.Output, s *adminmsg.Selector) error) *cobra.Command {
	var f selectFlags
	var out term.Output
	c := &cobra.Command{
		Use: use + selectUse, Short: short, Long: long + "\n\n" + selectHelp, Example: example,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := f.selector(c, args)
			if err != nil {
				return err
			}
			return run(c, &f, &out, s)
		},
	}
	out.AddFlag(c)
	f.flags(c)
	return c
}

func peekCommand() *cobra.Command {
	return bucketCommand("peek", "Show what somebody has left",
		"Show what is left of limits in a running service. Nothing is counted.",
		"  sluice peek posts-per-user user=ada\n"+
			"  sluice peek --domain messaging message_type=marketing\n"+
			"  sluice peek --request 'POST /posts' -H 'X-User: ada'",
		func(c *cobra.Command, f *selectFlags, o *term.Output, s *adminmsg.Selector) error {
			return call(c, &f.live, o, http.MethodPost, "/v1/peek", s, writePeeked)
		})
}

func writePeeked(b *adminmsg.Peeked, w io.Writer, s term.Style) error {
	if len(b.Buckets) == 0 {
		_, err := fmt.Fprintln(w, "nothing is counted: no rule has a limit for it")
		return err
	}
	for i := range b.Buckets {
		each := &b.Buckets[i]
		name := bucketText(each.Rule, each.Key)
		if each.Tier != "" {
			name += " with " + term.Printable(each.Tier)
		}
		fmt.Fprintf(w, "%s %s: %s\n", s.Mark(each.Allowed), s.Bold(name), stateText(each))
	}
	return nil
}

// stateText says what is left of a bucket, in the words of explain.
func stateText(b *adminmsg.Bucket) string {
	if b.BlockedSeconds > 0 {
		return "blocked for another " + term.Duration(term.Seconds(b.BlockedSeconds))
	}
	if b.Source == suspended {
		return suspendedText
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

func resetCommand() *cobra.Command {
	return bucketCommand("reset", "Forget what somebody has spent",
		"Forget what was spent of limits in a running service, and lift a block. The service's log says who did it.",
		"  sluice reset posts-per-user user=ada\n"+
			"  sluice reset --request 'POST /posts' -H 'X-User: ada'",
		func(c *cobra.Command, f *selectFlags, o *term.Output, s *adminmsg.Selector) error {
			return call(c, &f.live, o, http.MethodPost, "/v1/reset", s, func(b *adminmsg.Changed, w io.Writer, s term.Style) error {
				return writeDone(b, w, s, "reset", "")
			})
		})
}

// writeDone says what was done to which buckets.
func writeDone(b *adminmsg.Changed, w io.Writer, s term.Style, done, more string) error {
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

func blockCommand() *cobra.Command {
	var length time.Duration
	c := bucketCommand("block", "Deny somebody for a while",
		"Deny everything that counts in these limits for a while, whatever is left of them. All instances that share a store\n"+
			"obey within a second; with counts in memory it is this instance alone. The service's log says who did it.",
		"  sluice block posts-per-user user=ada --for 10m\n"+
			"  sluice block --request 'POST /posts' -H 'X-User: ada' --for 1h\n"+
			"  sluice unblock posts-per-user user=ada",
		func(c *cobra.Command, f *selectFlags, o *term.Output, s *adminmsg.Selector) error {
			switch {
			case !c.Flags().Changed("for"):
				return fmt.Errorf("say for how long: --for 10m")
			case length <= 0:
				return fmt.Errorf("--for %s: write a time such as 10m; to lift a block: sluice unblock", length)
			}
			body := adminmsg.Block{Selector: *s, For: length.String()}
			return call(c, &f.live, o, http.MethodPost, "/v1/block", body, func(b *adminmsg.Blocked, w io.Writer, s term.Style) error {
				until := ""
				if b.Until != nil {
					until = " until " + clock(*b.Until)
				}
				return writeDone(&b.Changed, w, s, "blocked", until)
			})
		})
	c.Flags().DurationVar(&length, "for", 0, "how long, such as 10m")
	term.CompleteFlag(c, "for", "1m", "10m", "1h", "24h")
	return c
}

func unblockCommand() *cobra.Command {
	return bucketCommand("unblock", "Lift a block",
		"Lift what sluice block did. What was spent before stays spent: sluice reset forgets that too.",
		"  sluice unblock posts-per-user user=ada",
		func(c *cobra.Command, f *selectFlags, o *term.Output, s *adminmsg.Selector) error {
			body := adminmsg.Block{Selector: *s, For: "0s"}
			return call(c, &f.live, o, http.MethodPost, "/v1/block", body, func(b *adminmsg.Blocked, w io.Writer, s term.Style) error {
				return writeDone(&b.Changed, w, s, "unblocked", "")
			})
		})
}

// clock is a time for people of this place; with the day if that is not today.
func clock(t time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}
