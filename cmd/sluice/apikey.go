package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	xterm "golang.org/x/term"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/faults"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/internal/strictyaml"
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
	unlock, err := lockDirectory(ctx, a.file) // because another command may add an entry at the same time
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
	return replaceFile(a.file, data)
}

// made is what is printed of an entry. Its fields are for programs to rely on.
type made struct {
	Key   string      `json:"key,omitempty"` // shown only now
	Entry authn.Entry `json:"entry"`
	File  string      `json:"file,omitempty"` // that it is in now
}

func (m *made) write(w io.Writer, of string) error {
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
			m := made{Key: key, Entry: a.entry, File: a.file}
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
			key, err := readSecret(c, "Key: ")
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
			password, err := readSecret(c, "Password: ")
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
			m := made{Entry: a.entry, File: a.file}
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

// readSecret reads the first line of standard input. Secrets are no arguments: everybody on a machine can see those.
func readSecret(c *cobra.Command, prompt string) (string, error) {
	in := c.InOrStdin()
	if f, ok := in.(*os.File); ok && xterm.IsTerminal(int(f.Fd())) {
		fmt.Fprint(c.ErrOrStderr(), prompt)
		b, err := xterm.ReadPassword(int(f.Fd()))
		fmt.Fprintln(c.ErrOrStderr())
		return string(b), err
	}
	const most = 4096
	line, err := bufio.NewReader(io.LimitReader(plainfile.Interruptible(c.Context(), in), most)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", errors.New("there is nothing on standard input: write it there, in one line")
	}
	return line, nil
}
