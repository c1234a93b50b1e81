package main

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const doctorLong = `Show which rules of a running service should be changed, and how: the verdict on each rule from its recent decisions in
this instance, with evidence and advice. Below them is the status: the store, its circuit breakers, and errors of the last
reload.

Exit codes: 0 if nothing needs a change; 1 if a rule does, or if the service is degraded; 2 if the service cannot be
reached.`

const doctorExample = `  sluice doctor
  sluice doctor -o json`

func doctorCommand() *cobra.Command {
	var live remoteFlags
	c := withoutArguments("doctor", "Show which rules to change, and problems of the service", doctorLong, doctorExample, func(c *cobra.Command) error {
		return diagnose(c, &live)
	})
	c.ValidArgsFunction = cobra.NoFileCompletions
	live.adminFlags(c)
	return c
}

// diagnosis is the JSON output of doctor: the responses of the admin API.
type diagnosis struct {
	Rules  json.RawMessage `json:"rules"`
	Status json.RawMessage `json:"status"`
}

func diagnose(c *cobra.Command, live *remoteFlags) error {
	var rules adminmsg.Rules
	var status adminmsg.Status
	rulesJSON, err := live.ask(c, http.MethodGet, "/v1/rules", nil, &rules)
	if err != nil {
		return err
	}
	statusJSON, err := live.ask(c, http.MethodGet, "/v1/status", nil, &status)
	if err != nil {
		return err
	}
	out, s := c.OutOrStdout(), term.NewStyle(c.OutOrStdout())
	if !live.out.IsJSON() {
		return admincli.WriteDoctor(&rules, &status, out, s)
	}
	found := admincli.WriteDoctor(&rules, &status, io.Discard, s) // for the exit code
	if err := term.WriteJSON(out, diagnosis{rulesJSON, statusJSON}); err != nil {
		return err
	}
	return found
}
