package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/faults"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// account are the flags of commands that make an entry of a file, of users if users is set, otherwise of API keys.
type account struct {
	users      bool
	out        term.Output
	entry      authn.Entry
	attributes []string
	file       string
}

func (a *account) flags(c *cobra.Command) {
	a.out.AddFlag(c)
	of := "API keys"
	if a.users {
		of = "users"
	}
	f := c.Flags()
	f.StringVar(&a.entry.User, "user", "", "who it is: attr:user in rules")
	f.StringVar(&a.entry.Plan, "plan", "", "the plan: attr:plan in rules")
	f.StringVar(&a.entry.Expires, "expires", "", "the day (UTC) from which on it is of no use, such as 2027-01-31")
	f.StringArrayVar(&a.attributes, "attribute", nil, "another attribute, NAME=VALUE: attr:NAME in rules; may be repeated")
	f.StringVarP(&a.file, "file", "f", "", "add the entry to this file of "+of+", which is made if it is not there")
	_ = c.MarkFlagFilename("file", "yaml", "yml")
	for _, name := range []string{"user", "plan", "expires", "attribute"} {
		term.CompleteFlag(c, name)
	}
}

// complete reads the attributes, and looks whether the entry is sound.
func (a *account) complete(hash string) error {
	a.entry.Hash = hash
	if a.entry.User == "" {
		return errors.New("who is it for? Write --user NAME")
	}
	for _, text := range a.attributes {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("--attribute: write NAME=VALUE")
		}
		if a.entry.Attributes == nil {
			a.entry.Attributes = map[string]string{}
		}
		a.entry.Attributes[name] = value
	}
	if err := authn.CheckEntry(&a.entry); err != nil {
		found, other := faults.Split(err)
		if len(found) == 0 {
			return other
		}
		return errors.New(found[0].Message)
	}
	return nil
}
