package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
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
			"  sluice peek --domain demo remote_address=10.0.0.1\n"+
			"  sluice peek --request 'POST /posts' -H 'X-User: ada'",
		func(c *cobra.Command, f *selectFlags, o *term.Output, s *adminmsg.Selector) error {
			return call(c, &f.live, o, http.MethodPost, "/v1/peek", s, admincli.WritePeeked)
		})
}

func resetCommand() *cobra.Command {
	return bucketCommand("reset", "Forget what somebody has spent",
		"Forget what was spent of limits in a running service, and lift a block. The service's log says who did it.",
		"  sluice reset posts-per-user user=ada\n"+
			"  sluice reset --request 'POST /posts' -H 'X-User: ada'",
		func(c *cobra.Command, f *selectFlags, o *term.Output, s *adminmsg.Selector) error {
			return call(c, &f.live, o, http.MethodPost, "/v1/reset", s, func(b *adminmsg.Changed, w io.Writer, s term.Style) error {
				return admincli.WriteChanged(b, w, s, "reset", "")
			})
		})
}

func blockCommand() *cobra.Command {
	var length time.Duration
	c := bucketCommand("block", "Deny somebody for a while",
		"Deny everything that counts in these limits for a while, whatever is left of them. All instances that share a store\n"+
			"obey within a second; with counts in memory it is this instance alone. The service's log says who did it.\n\n"+
			"With --request all limits are blocked that the request would be counted in, and one that counts everybody together\n"+
			"denies everybody then: name the rule instead.",
		"  sluice block posts-per-user user=ada --for 10m\n"+
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
					until = " until " + term.Clock(*b.Until)
				}
				return admincli.WriteChanged(&b.Changed, w, s, "blocked", until)
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
				return admincli.WriteChanged(&b.Changed, w, s, "unblocked", "")
			})
		})
}
