package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const apikeyLong = `Create, list and revoke API keys for clients of the gateway. Key files contain only hashes, so that a key cannot be read
from its file. The service reloads its key files when they change.`

const apikeyExample = `  sluice apikey new --user ada --plan pro --file keys.yaml
  sluice apikey list --file keys.yaml
  sluice apikey revoke k-9f86d081 --file keys.yaml
  sluice apikey hash <key.txt          # hash a key that another system created`

func apikeyCommand() *cobra.Command {
	c := newCommand("apikey", "Create, list and revoke API keys for clients of the gateway", apikeyLong, apikeyExample, nil)
	c.AddCommand(apikeyNewCommand(), apikeyHashCommand(), apikeyListCommand(), apikeyRevokeCommand())
	return c
}

const apikeyNewLong = `Create an API key of 256 random bits and print it. The entry with its hash is printed too, or with --file added to a key
file. The key itself is not stored.`

const apikeyNewExample = `  sluice apikey new --user ada --plan pro
  sluice apikey new --user ada --plan pro --attribute team=search --expires 2027-01-31 --file keys.yaml
  sluice apikey new --user ada -o json`

func apikeyNewCommand() *cobra.Command {
	var a account
	c := withoutArguments("new --user NAME", "Create an API key", apikeyNewLong, apikeyNewExample, func(c *cobra.Command) error {
		key, hash := authn.NewKey()
		a.entry.ID = authn.KeyID(hash)
		return a.save(c, key, hash)
	})
	a.flags(c)
	return c
}

const apikeyHashLong = `Read an existing API key from standard input, and print its hash for a key file. Keys of fewer than 24 characters are
rejected, because an attacker could find them from their hash by trying all keys.`

const apikeyHashExample = `  sluice apikey hash <key.txt
  pass show api-key | sluice apikey hash`

func apikeyHashCommand() *cobra.Command {
	var out term.Output
	c := withoutArguments("hash", "Print the hash of an existing API key",
		apikeyHashLong, apikeyHashExample, func(c *cobra.Command) error {
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
		})
	out.AddFlag(c)
	return c
}
