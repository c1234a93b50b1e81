package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/fileerrors"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// account contains the flags of commands that create an entry of a key file or, if users is set, of a user file.
type account struct {
	users      bool
	out        term.Output
	entry      authn.Entry
	attributes []string
	file       string
}

func (a *account) flags(c *cobra.Command) {
	a.out.AddFlag(c)
	kind := "key file"
	if a.users {
		kind = "user file"
	}
	f := c.Flags()
	f.StringVar(&a.entry.User, "user", "", "user name; attr:user in rules")
	f.StringVar(&a.entry.Plan, "plan", "", "plan; attr:plan in rules")
	f.StringVar(&a.entry.Expires, "expires", "", "expiry date (UTC), such as 2027-01-31; invalid from the start of that day")
	f.StringArrayVar(&a.attributes, "attribute", nil, "additional attribute, `NAME=VALUE`; attr:NAME in rules; may be repeated")
	f.StringVarP(&a.file, "file", "f", "", kind+" to add the entry to; created if it does not exist")
	_ = c.MarkFlagFilename("file", "yaml", "yml")
	for _, name := range []string{"user", "plan", "expires", "attribute"} {
		term.CompleteFlag(c, name)
	}
}

// complete adds the hash and the attributes to the entry, and returns an error if the entry is invalid.
func (a *account) complete(hash string) error {
	a.entry.Hash = hash
	if a.entry.User == "" {
		return errors.New("a user is required: write --user NAME")
	}
	for _, text := range a.attributes {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("--attribute %q: write NAME=VALUE", text)
		}
		if a.entry.Attributes == nil {
			a.entry.Attributes = map[string]string{}
		}
		a.entry.Attributes[name] = value
	}
	if err := authn.CheckEntry(&a.entry); err != nil {
		found, other := fileerrors.Split(err)
		if len(found) == 0 {
			return other
		}
		return errors.New(found[0].Message)
	}
	return nil
}
