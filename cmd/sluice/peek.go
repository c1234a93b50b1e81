package main

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
)

func peekCommand() *cobra.Command {
	return bucketCommand("peek", "Show the remaining quota of a key",
		"Show the remaining quota of limits in a running service. Nothing is charged.\n\n"+
			"Exit codes: 0 if all limits allow a request now, 1 if one denies it, in shadow mode too.",
		"  sluice peek posts-per-user user=ada\n"+
			"  sluice peek --domain demo remote_address=10.0.0.1\n"+
			"  sluice peek --request 'POST /posts' -H 'X-User: ada'",
		func(c *cobra.Command, f *selectFlags, s *adminmsg.Selector) error {
			return call(c, &f.live, http.MethodPost, "/v1/peek", s, admincli.WritePeeked)
		})
}
