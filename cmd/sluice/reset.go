package main

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
)

func resetCommand() *cobra.Command {
	return bucketCommand("reset", "Forget what somebody has spent",
		"Forget what was spent of limits in a running service, and lift a block. The service's log says who did it.",
		"  sluice reset posts-per-user user=ada\n"+
			"  sluice reset --request 'POST /posts' -H 'X-User: ada'",
		func(c *cobra.Command, f *selectFlags, s *adminmsg.Selector) error {
			return call(c, &f.live, http.MethodPost, "/v1/reset", s, admincli.WriteReset)
		})
}
