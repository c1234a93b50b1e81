package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/explain"
)

// explainLive returns the explanation of the running service.
func (f *explainFlags) explainLive(c *cobra.Command, args []string) (*explain.Result, error) {
	if len(f.paths) > 0 || f.snapshot != "" {
		return nil, fmt.Errorf("--live uses the rules and the usage of the running service: remove --rules and --snapshot")
	}
	ask, err := admincli.Explain(&f.request.Described, f.domain, args, f.cost)
	if err != nil {
		return nil, err
	}
	x := new(explain.Result)
	_, err = f.live.ask(c, http.MethodPost, "/v1/explain", ask, x)
	if f.matching {
		x.OnlyMatching()
	}
	return x, err
}
