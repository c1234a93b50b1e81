package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// takeFlags are what take is asked.
type takeFlags struct {
	live    remoteFlags
	request requestFlags
	domain  string
	cost    int64
	times   int
}

// maxTakes is how often take asks: what is more is a load test.
const maxTakes = 10_000

const takeLong = `Ask a running service whether a request may pass, as a caller does (POST /v1/check), and show the answer.
It is counted. To look without counting: sluice peek.

It ends with 0 if all was allowed, 1 if something was denied.`

const takeExample = `  sluice take 'POST /posts' -H 'X-User: ada'
  sluice take -n 10 'POST /posts' -H 'X-User: ada'
  sluice take --domain demo remote_address=10.0.0.1`

func takeCommand() *cobra.Command {
	var f takeFlags
	c := newCommand("take [METHOD] PATH | --domain DOMAIN KEY=VALUE...", "Ask whether a request may pass, and have it counted",
		takeLong, takeExample, f.run)
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.Flags().IntVarP(&f.times, "times", "n", 1, "how often to ask, one after the other")
	c.Flags().Int64Var(&f.cost, "cost", 0, "what the request costs, instead of what the rules say (hits, with --domain)")
	c.Flags().StringVar(&f.domain, "domain", "", "the arguments are descriptors of this Envoy domain, with a + between them")
	f.request.flags(c)
	f.live.serviceFlags(c)
	for _, name := range []string{"times", "cost", "domain"} {
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
		answer, err := client.Check(c.Context(), check)
		if err != nil {
			return f.live.advise(c.Context(), err)
		}
		t.Add(answer)
	}
	t.Seconds = time.Since(began).Seconds()
	return writeResult(c, &f.live.out, &t, t.Write, t.Denied > 0)
}

// check is what is asked.
func (f *takeFlags) check(args []string) (*adminclient.Check, error) {
	switch {
	case f.times < 1 || f.times > maxTakes:
		return nil, fmt.Errorf("-n %d: write 1 to %d; for more: sluice bench", f.times, maxTakes)
	case f.cost < 0 || f.cost > sluice.MaxCost:
		return nil, fmt.Errorf("--cost %d: write a number of at least 1", f.cost)
	case len(args) == 0:
		return nil, fmt.Errorf("say which request: sluice take 'POST /posts', or --domain auth auth_type=login")
	}
	check := &adminclient.Check{Domain: f.domain, Cost: f.cost}
	if f.domain == "" {
		var err error
		if check.Attributes, err = f.request.CheckAttributes(strings.Join(args, " ")); err != nil {
			return nil, fmt.Errorf("%w\nto look at what somebody has left of a rule: sluice peek", err)
		}
		return check, nil
	}
	if f.request.Given() {
		return nil, fmt.Errorf("-H, --cookie, --claim, --attr and --ip describe an HTTP request: with --domain write KEY=VALUE")
	}
	var err error
	check.Descriptors, err = admincli.DescriptorsOf(f.domain, args)
	return check, err
}
