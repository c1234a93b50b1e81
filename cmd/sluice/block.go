package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

func blockCommand() *cobra.Command {
	var length time.Duration
	c := bucketCommand("block", "Deny somebody for a while",
		"Deny everything that counts in these limits for a while, whatever is left of them. All instances that share a store\n"+
			"obey within a second; with counts in memory it is this instance alone. The service's log says who did it.\n\n"+
			"With --request all limits are blocked that the request would be counted in, and one that counts everybody together\n"+
			"denies everybody then: name the rule instead.",
		"  sluice block posts-per-user user=ada --for 10m\n"+
			"  sluice unblock posts-per-user user=ada",
		func(c *cobra.Command, f *selectFlags, s *adminmsg.Selector) error {
			switch {
			case !c.Flags().Changed("for"):
				return fmt.Errorf("say for how long: --for 10m")
			case length <= 0:
				return fmt.Errorf("--for %s: write a time such as 10m; to lift a block: sluice unblock", length)
			}
			body := adminmsg.Block{Selector: *s, For: length.String()}
			return call(c, &f.live, http.MethodPost, "/v1/block", body, admincli.WriteBlocked)
		})
	term.AddDuration(c, &length, "for", "", 0, "how long, such as 10m or 1d")
	term.CompleteFlag(c, "for", "1m", "10m", "1h", "1d")
	return c
}

func unblockCommand() *cobra.Command {
	return bucketCommand("unblock", "Lift a block",
		"Lift what sluice block did. What was spent before stays spent: sluice reset forgets that too.",
		"  sluice unblock posts-per-user user=ada",
		func(c *cobra.Command, f *selectFlags, s *adminmsg.Selector) error {
			body := adminmsg.Block{Selector: *s, For: "0s"}
			return call(c, &f.live, http.MethodPost, "/v1/block", body, admincli.WriteUnblocked)
		})
}
