package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// takeFlags are the flags of the take command.
type takeFlags struct {
	live    remoteFlags
	request requestFlags
	domain  string
	cost    int64
	times   int
}

// maxTakes is the maximum number of requests. For more there is sluice bench.
const maxTakes = 10_000

const takeLong = `Check a request with the check API of a running service (POST /v1/check), and show the response. The request is charged
to its limits; sluice peek shows limits without charging them.

Exit codes: 0 if all requests are allowed, 1 if one is denied, 2 if the service cannot be reached or the call is invalid.`

const takeExample = `  sluice take 'POST /posts' -H 'X-User: ada'
  sluice take -n 10 'POST /posts' -H 'X-User: ada'
  sluice take --domain demo remote_address=10.0.0.1`

func takeCommand() *cobra.Command {
	var f takeFlags
	c := newCommand("take [METHOD] PATH | --domain DOMAIN KEY=VALUE...", "Check a request, and charge it to its limits",
		takeLong, takeExample, f.run)
	c.ValidArgsFunction = cobra.NoFileCompletions
	term.AddNumber(c, &f.times, "times", "n", 1, 1, maxTakes, "number of requests, sent one after the other", "for load tests there is sluice bench")
	costFlag(c, &f.cost)
	c.Flags().StringVar(&f.domain, "domain", "", "Envoy domain; the arguments are descriptor entries, with a + between descriptors")
	f.request.flags(c)
	f.live.serviceFlags(c)
	for _, name := range []string{"times", "domain"} {
		term.CompleteFlag(c, name)
	}
	return c
}

func (f *takeFlags) run(c *cobra.Command, args []string) error {
	check, err := f.check(args)
	if err != nil {
		return err
	}
	client, err := f.live.client(c.Context(), c.ErrOrStderr())
	if err != nil {
		return err
	}
	began := time.Now()
	var t admincli.TakeResult
	for range f.times {
		result, err := client.Check(c.Context(), check)
		if err != nil {
			return f.live.advise(c.Context(), err)
		}
		t.Add(result)
	}
	t.Seconds = time.Since(began).Seconds()
	return writeResult(c, &f.live.out, &t, t.Write, t.Denied > 0)
}

// check returns the body of the check API's request.
func (f *takeFlags) check(args []string) (*adminclient.Check, error) {
	switch {
	case len(args) == 0:
		return nil, fmt.Errorf("a request is required: write sluice take 'POST /posts', or sluice take --domain auth auth_type=login")
	}
	check := &adminclient.Check{Domain: f.domain, Cost: f.cost}
	if f.domain == "" {
		var err error
		if check.Attributes, err = f.request.CheckAttributes(strings.Join(args, " ")); err != nil {
			return nil, fmt.Errorf("%w\nto show the remaining quota of a key: sluice peek", err)
		}
		return check, nil
	}
	if f.request.Given() {
		return nil, fmt.Errorf("-H, --cookie, --claim, --attr and --ip describe an HTTP request: with --domain write KEY=VALUE arguments instead")
	}
	var err error
	check.Descriptors, err = admincli.DescriptorsOf(f.domain, args)
	return check, err
}
