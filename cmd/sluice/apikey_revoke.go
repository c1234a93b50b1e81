package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

const apikeyListLong = "List the API keys in a key file: id, user, plan, state, expiry date and attributes. Hashes are not shown."

func apikeyListCommand() *cobra.Command {
	var file string
	var out term.Output
	c := withoutArguments("list --file FILE", "List the API keys in a key file",
		apikeyListLong, "  sluice apikey list --file keys.yaml", func(c *cobra.Command) error {
			if file == "" {
				return errors.New("a key file is required: write --file keys.yaml")
			}
			data, err := plainfile.Read(file, strictyaml.MaxBytes)
			if err != nil {
				return err
			}
			all, err := authn.ListKeys(file, data)
			if err != nil {
				return err
			}
			return writeResult(c, &out, map[string]any{"keys": all}, func(w io.Writer) error { return term.Table(w, keyRows(all)) }, false)
		})
	keyFileFlag(c, &file)
	out.AddFlag(c)
	return c
}

func keyFileFlag(c *cobra.Command, file *string) {
	c.Flags().StringVarP(file, "file", "f", "", "key file (YAML)")
	_ = c.MarkFlagFilename("file", "yaml", "yml")
}

func keyRows(all []authn.KeyInfo) [][]string {
	rows := [][]string{{"id", "user", "plan", "state", "expires", "attributes"}}
	for i := range all {
		k := &all[i]
		expires := "never"
		if k.Expires != nil {
			expires = k.Expires.Format(time.DateOnly)
		}
		var attributes []string
		for name, value := range k.Attributes {
			attributes = append(attributes, name+"="+value)
		}
		slices.Sort(attributes)
		row := []string{k.ID, k.User, k.Plan, k.State, expires, strings.Join(attributes, " ")}
		for i := range row {
			row[i] = term.Printable(row[i])
		}
		rows = append(rows, row)
	}
	return rows
}

const apikeyRevokeLong = `Remove an API key from a key file. Running services reload the file within a second and then reject the key with 401.
Select the key by its id, by a prefix of its id, or by a user with a single key.`

const apikeyRevokeExample = `  sluice apikey revoke k-9f86d081 --file keys.yaml
  sluice apikey revoke ada --file keys.yaml`

func apikeyRevokeCommand() *cobra.Command {
	var file string
	var out term.Output
	c := newCommand("revoke ID --file FILE", "Remove an API key from a key file",
		apikeyRevokeLong, apikeyRevokeExample, func(c *cobra.Command, args []string) error {
			var revoked authn.KeyInfo
			err := editAccounts(c.Context(), file, func(data []byte) (_ []byte, err error) {
				if len(data) == 0 {
					return nil, errors.New("the file does not exist or is empty")
				}
				data, revoked, err = authn.Revoke(file, data, args[0])
				return data, err
			})
			if err != nil {
				return err
			}
			return writeResult(c, &out, revoked, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "revoked %s of user %s: services that use %s reject it within a second\n",
					term.Printable(revoked.ID), term.Printable(revoked.User), file)
				return err
			}, false)
		})
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" || file == "" {
			return errors.New("one key and a key file are required: write sluice apikey revoke ID --file keys.yaml; sluice apikey list shows the ids")
		}
		return nil
	}
	c.ValidArgsFunction = cobra.NoFileCompletions
	keyFileFlag(c, &file)
	out.AddFlag(c)
	return c
}
