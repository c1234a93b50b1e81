package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const passwordLong = `Hash a password (bcrypt), which is read from standard input, and print the entry for a file of users, or add it there.
On a terminal it is asked for and not shown.`

const passwordExample = `  sluice password --user ada --plan pro --file users.yaml
  pass show ada | sluice password --user ada -o json`

func passwordCommand() *cobra.Command {
	a := account{users: true}
	cost := authn.DefaultCost
	c := withoutArguments("password --user NAME", "Hash a password for a user of the gateway",
		passwordLong, passwordExample, func(c *cobra.Command) error {
			if a.entry.User == "" {
				return errors.New("who is it for? Write --user NAME")
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
	c.Flags().IntVar(&cost, "cost", cost, "of the hash, between 10 and 14: one more is twice the time")
	term.CompleteFlag(c, "cost")
	return c
}
