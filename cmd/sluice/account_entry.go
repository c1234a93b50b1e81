package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/fileerrors"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// save completes the entry, adds it to its file and prints it. The key is empty for a user with a password.
func (a *account) save(c *cobra.Command, key, hash string) error {
	if err := a.complete(hash); err != nil {
		return err
	}
	if err := a.add(c.Context()); err != nil {
		return err
	}
	return a.print(c, key)
}

// add appends the entry to the file, if a file was given.
func (a *account) add(ctx context.Context) error {
	if a.file == "" {
		return nil
	}
	return editAccounts(ctx, a.file, func(data []byte) ([]byte, error) { return authn.Append(a.file, data, a.users, &a.entry) })
}

// editAccounts rewrites a key file or user file with the result of change, which gets the content of the file. A file that does
// not exist is created; change then gets no data.
func editAccounts(ctx context.Context, file string, change func([]byte) ([]byte, error)) error {
	unlock, err := plainfile.LockDirectory(ctx, file) // because another command may change the file at the same time
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	defer unlock()
	data, err := plainfile.Read(file, strictyaml.MaxBytes)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err != nil && !isNew {
		return err
	}
	if data, err = change(data); err != nil {
		if found, _ := fileerrors.Split(err); len(found) > 0 {
			return fmt.Errorf("%s is not changed, because it has errors: %w", file, err)
		}
		return fmt.Errorf("%s: %w", file, err)
	}
	if isNew {
		return os.WriteFile(file, data, 0o600)
	}
	return plainfile.Replace(file, data)
}

// newAccount is the JSON output of a new entry. Programs rely on its fields.
type newAccount struct {
	Key   string      `json:"key,omitempty"` // printed once and not stored
	Entry authn.Entry `json:"entry"`
	File  string      `json:"file,omitempty"` // the file the entry was added to
}

func (a *account) print(c *cobra.Command, key string) error {
	w := c.OutOrStdout()
	if a.out.IsJSON() {
		return term.WriteJSON(w, newAccount{Key: key, Entry: a.entry, File: a.file})
	}
	if key != "" {
		fmt.Fprintf(w, "%s\n\n", key)
		fmt.Fprintln(w, "This is the API key. It is not shown again: only its hash is stored.")
	}
	if a.file != "" {
		_, err := fmt.Fprintf(w, "The entry with the hash was added to %s.\n", a.file)
		return err
	}
	setting := "authentication.api_keys.files"
	if a.users {
		setting = "authentication.basic.files"
	}
	_, err := fmt.Fprintf(w, "Add this entry to a file that %s lists:\n\n%s", setting, a.entry.YAML("  "))
	return err
}
