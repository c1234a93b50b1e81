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

// maxBlock is the maximum duration that the admin API accepts.
const maxBlock = 366 * 24 * time.Hour

func blockCommand() *cobra.Command {
	var length time.Duration
	c := bucketCommand("block", "Deny all requests of a key for a while",
		"Deny all requests of a key for a while, even if quota remains. The block applies in all instances that share the\n"+
			"store within a second; with the memory store, in this instance only. The service logs the operation and its operator.\n\n"+
			"With --request, all limits are blocked that the request would be charged to. A limit without per counts all clients\n"+
			"together, so its block denies all of them: then select a rule and a key instead of a request.",
		"  sluice block posts-per-user user=ada --for 10m\n"+
			"  sluice unblock posts-per-user user=ada",
		func(c *cobra.Command, f *selectFlags, s *adminmsg.Selector) error {
			switch {
			case !c.Flags().Changed("for"):
				return fmt.Errorf("a duration is required: write --for 10m")
			case length <= 0:
				return fmt.Errorf("--for %s: write a duration above zero, such as 10m; sluice unblock lifts a block", term.Duration(length))
			case length > maxBlock:
				return fmt.Errorf("--for %s: write a duration of at most %s", term.Duration(length), term.Duration(maxBlock))
			}
			body := adminmsg.Block{Selector: *s, Duration: length.String()}
			return call(c, &f.live, http.MethodPost, "/v1/block", body, admincli.WriteBlocked)
		})
	term.AddDuration(c, &length, "for", "", 0, "duration of the block, such as 10m or 1d")
	term.CompleteFlag(c, "for", "1m", "10m", "1h", "1d")
	return c
}

func unblockCommand() *cobra.Command {
	return bucketCommand("unblock", "Lift the block of a key",
		"Lift a block set by sluice block. Usage is kept; sluice reset resets usage too.",
		"  sluice unblock posts-per-user user=ada",
		func(c *cobra.Command, f *selectFlags, s *adminmsg.Selector) error {
			body := adminmsg.Block{Selector: *s, Duration: "0s"}
			return call(c, &f.live, http.MethodPost, "/v1/block", body, admincli.WriteUnblocked)
		})
}
