package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

func passwordCommand() *cobra.Command {
	var out term.Output
	var a account
	cost := authn.DefaultCost
	c := &cobra.Command{
		Use:   "password --user NAME",
		Short: "Hash a password for a user of the gateway",
		Long: "Hash a password (bcrypt), which is read from standard input, and print the entry for a file of users, or add it there.\n" +
			"On a terminal it is asked for and not shown.",
		Example: "  sluice password --user ada --plan pro --file users.yaml\n" +
			"  pass show ada | sluice password --user ada -o json",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
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
			if err := a.complete(hash); err != nil {
				return err
			}
			if err := a.add(c.Context(), true); err != nil {
				return err
			}
			m := newAccount{Entry: a.entry, File: a.file}
			if out.IsJSON() {
				return term.WriteJSON(c.OutOrStdout(), m)
			}
			return m.write(c.OutOrStdout(), "authentication.basic.files")
		},
	}
	out.AddFlag(c)
	a.flags(c, "users")
	c.Flags().IntVar(&cost, "cost", cost, "of the hash, between 10 and 14: one more is twice the time")
	term.CompleteFlag(c, "cost")
	return c
}
