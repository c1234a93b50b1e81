package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const passwordLong = `Read a password from standard input, hash it with bcrypt and print the entry for a user file, or with --file add the
entry to the file. On a terminal the command prompts for the password and does not echo it.`

const passwordExample = `  sluice password --user ada --plan pro --file users.yaml
  pass show ada | sluice password --user ada -o json`

func passwordCommand() *cobra.Command {
	a := account{users: true}
	cost := authn.DefaultCost
	c := withoutArguments("password --user NAME", "Hash a password for a user of the gateway",
		passwordLong, passwordExample, func(c *cobra.Command) error {
			if a.entry.User == "" {
				return errors.New("a user is required: write --user NAME")
			}
			if strings.Contains(a.entry.User, ":") {
				return fmt.Errorf("--user %q: basic authentication ends a user name at the first colon: write a name without one", a.entry.User)
			}
			password, err := term.ReadSecret(c.Context(), c.InOrStdin(), c.ErrOrStderr(), "Password: ")
			if err != nil {
				return err
			}
			hash, err := authn.HashPassword(password, cost)
			if err != nil {
				return err
			}
			return a.save(c, "", hash)
		})
	a.flags(c)
	term.AddNumber(c, &cost, "cost", "", cost, 10, 14, "bcrypt cost, 10 to 14; each step doubles the time", "")
	term.CompleteFlag(c, "cost")
	return c
}
