package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/faults"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// account are the flags of commands that make an entry of a file.
type account struct {
	entry      authn.Entry
	attributes []string
	file       string
}

func (a *account) flags(c *cobra.Command, of string) {
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

// add puts the entry into the file, if there is to be one.
func (a *account) add(ctx context.Context, users bool) error {
	if a.file == "" {
		return nil
	}
	unlock, err := plainfile.LockDirectory(ctx, a.file) // because another command may add an entry at the same time
	if err != nil {
		return fmt.Errorf("%s: %w", a.file, err)
	}
	defer unlock()
	data, err := plainfile.Read(a.file, strictyaml.MaxBytes)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err != nil && !isNew {
		return err
	}
	if data, err = authn.Append(a.file, data, users, &a.entry); err != nil {
		if found, _ := faults.Split(err); len(found) > 0 {
			return fmt.Errorf("%s is left as it is: %w", a.file, err)
		}
		return fmt.Errorf("%s: %w", a.file, err)
	}
	if isNew {
		return os.WriteFile(a.file, data, 0o600)
	}
	return plainfile.Replace(a.file, data)
}

// newAccount is what is printed of an entry. Its fields are for programs to rely on.
type newAccount struct {
	Key   string      `json:"key,omitempty"` // shown only now
	Entry authn.Entry `json:"entry"`
	File  string      `json:"file,omitempty"` // that it is in now
}

func (m *newAccount) write(w io.Writer, of string) error {
	if m.Key != "" {
		fmt.Fprintf(w, "%s\n\n", m.Key)
		fmt.Fprintln(w, "This is the key. It is shown only now, and only its hash is kept.")
	}
	if m.File != "" {
		_, err := fmt.Fprintf(w, "Its entry is in %s.\n", m.File)
		return err
	}
	_, err := fmt.Fprintf(w, "Its entry, for a file that %s names:\n\n%s", of, m.Entry.YAML("  "))
	return err
}
