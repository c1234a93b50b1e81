package main

import (
	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// requestFlags describe an HTTP request, except for its method and URL.
type requestFlags struct{ admincli.Described }

func (f *requestFlags) flags(c *cobra.Command) {
	c.Flags().StringArrayVarP(&f.Headers, "header", "H", nil, "header of the request, `'Name: value'`; may be repeated")
	c.Flags().StringArrayVar(&f.Cookies, "cookie", nil, "cookie, `name=value`; may be repeated")
	c.Flags().StringArrayVar(&f.Claims, "claim", nil, "claim of a verified JWT, `name=value`; may be repeated")
	c.Flags().StringArrayVar(&f.Attributes, "attr", nil, "attribute attr:NAME, which the application sets, `name=value`; may be repeated")
	c.Flags().StringVar(&f.IP, "ip", "", "IP address of the peer")
	for _, name := range []string{"header", "cookie", "claim", "attr", "ip"} {
		term.CompleteFlag(c, name)
	}
}

// costFlag adds the flag for the cost of a request. 0 means that it is not given.
func costFlag(c *cobra.Command, to *int64) {
	term.AddNumber(c, to, "cost", "", 0, 1, sluice.MaxCost, "cost of the request instead of the rules' cost (with --domain: hits)",
		"to read the quota use sluice peek")
	term.CompleteFlag(c, "cost")
}
