package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

func apikeyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "apikey",
		Short: "Make API keys for clients of the gateway",
		Long: "Make API keys for clients of the gateway. Files hold only their hashes, so that nobody who reads one can use a key.\n" +
			"The service reads its files again when they change.",
		Example: "  sluice apikey new --user ada --plan pro --file keys.yaml\n" +
			"  sluice apikey hash <key.txt          # of a key from elsewhere",
	}
	c.AddCommand(apikeyNewCommand(), apikeyHashCommand())
	return c
}

func apikeyNewCommand() *cobra.Command {
	var out term.Output
	var a account
	c := &cobra.Command{
		Use:   "new --user NAME",
		Short: "Make an API key",
		Long: "Make an API key of 256 random bits, print it, and print the entry with its hash for a file of keys, or add it there.\n" +
			"The key is not kept anywhere.",
		Example: "  sluice apikey new --user ada --plan pro\n" +
			"  sluice apikey new --user ada --plan pro --attribute team=search --expires 2027-01-31 --file keys.yaml\n" +
			"  sluice apikey new --user ada -o json",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			key, hash := authn.NewKey()
			a.entry.ID = authn.KeyID(hash)
			if err := a.complete(hash); err != nil {
				return err
			}
			if err := a.add(c.Context(), false); err != nil {
				return err
			}
			m := newAccount{Key: key, Entry: a.entry, File: a.file}
			if out.IsJSON() {
				return term.WriteJSON(c.OutOrStdout(), m)
			}
			return m.write(c.OutOrStdout(), "authentication.api_keys.files")
		},
	}
	out.AddFlag(c)
	a.flags(c, "API keys")
	return c
}

func apikeyHashCommand() *cobra.Command {
	var out term.Output
	c := &cobra.Command{
		Use:   "hash",
		Short: "Print the hash of an API key from elsewhere",
		Long: "Print the hash of an API key from elsewhere, which is read from standard input, for a file of keys.\n" +
			"Keys of fewer than 24 characters are refused: their hash tells the key to who can try all.",
		Example: "  sluice apikey hash <key.txt\n  pass show api-key | sluice apikey hash",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			key, err := term.ReadSecret(c.Context(), c.InOrStdin(), c.ErrOrStderr(), "Key: ")
			if err != nil {
				return err
			}
			hash, err := authn.HashKey(key)
			if err != nil {
				return err
			}
			if out.IsJSON() {
				return term.WriteJSON(c.OutOrStdout(), map[string]string{"hash": hash})
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), hash)
			return err
		},
	}
	out.AddFlag(c)
	return c
}
