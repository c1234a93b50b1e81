package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/faults"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// save completes the entry, adds it to its file and prints it. The key is that of an API key, or empty.
func (a *account) save(c *cobra.Command, key, hash string) error {
	if err := a.complete(hash); err != nil {
		return err
	}
	if err := a.add(c.Context()); err != nil {
		return err
	}
	return a.print(c, key)
}

// add puts the entry into the file, if there is to be one.
func (a *account) add(ctx context.Context) error {
	if a.file == "" {
		return nil
	}
	return editAccounts(ctx, a.file, func(data []byte) ([]byte, error) { return authn.Append(a.file, data, a.users, &a.entry) })
}

// editAccounts changes a file of accounts. One that does not exist is empty, and is made if it is to have content.
func editAccounts(ctx context.Context, file string, change func([]byte) ([]byte, error)) error {
	unlock, err := plainfile.LockDirectory(ctx, file) // because another command may change it at the same time
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
		if found, _ := faults.Split(err); len(found) > 0 {
			return fmt.Errorf("%s is left as it is: %w", file, err)
		}
		return fmt.Errorf("%s: %w", file, err)
	}
	if isNew {
		return os.WriteFile(file, data, 0o600)
	}
	return plainfile.Replace(file, data)
}

// newAccount is what is printed of an entry. Its fields are for programs to rely on.
type newAccount struct {
	Key   string      `json:"key,omitempty"` // shown only now
	Entry authn.Entry `json:"entry"`
	File  string      `json:"file,omitempty"` // that it is in now
}

func (a *account) print(c *cobra.Command, key string) error {
	w := c.OutOrStdout()
	if a.out.IsJSON() {
		return term.WriteJSON(w, newAccount{Key: key, Entry: a.entry, File: a.file})
	}
	if key != "" {
		fmt.Fprintf(w, "%s\n\n", key)
		fmt.Fprintln(w, "This is the key. It is shown only now, and only its hash is kept.")
	}
	if a.file != "" {
		_, err := fmt.Fprintf(w, "Its entry is in %s.\n", a.file)
		return err
	}
	of := "authentication.api_keys.files"
	if a.users {
		of = "authentication.basic.files"
	}
	_, err := fmt.Fprintf(w, "Its entry, for a file that %s names:\n\n%s", of, a.entry.YAML("  "))
	return err
}
