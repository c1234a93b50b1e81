package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// remoteFlags say which running service a command asks, and how it writes the answer.
type remoteFlags struct {
	cfg    adminclient.Config
	caller bool // it asks as callers do
	out    term.Output
}

// adminFlags are for commands that ask the admin API.
func (f *remoteFlags) adminFlags(c *cobra.Command) {
	f.setting(c, &f.cfg.Admin, "admin", "SLUICE_ADMIN", adminclient.DefaultAdmin, "where the service answers operators")
	f.setting(c, &f.cfg.TokenFile, "token-file", "SLUICE_TOKEN_FILE", "", "file with the token of the admin API")
	f.cfg.Service = adminclient.DefaultService
	f.commonFlags(c)
}

// serviceFlags are for commands that ask as callers do.
func (f *remoteFlags) serviceFlags(c *cobra.Command) {
	f.setting(c, &f.cfg.Service, "service", "SLUICE_SERVICE", adminclient.DefaultService, "where the service answers callers")
	f.cfg.Admin, f.caller = adminclient.DefaultAdmin, true
	f.commonFlags(c)
}

func (f *remoteFlags) commonFlags(c *cobra.Command) {
	f.out.AddFlag(c)
	f.setting(c, &f.cfg.CA, "ca", "SLUICE_CA", "", "file with the authority of the service's certificate")
	f.setting(c, &f.cfg.Cert, "cert", "SLUICE_CERT", "", "file with the certificate to show the service")
	f.setting(c, &f.cfg.Key, "key", "SLUICE_KEY", "", "file with that certificate's key")
}

// setting adds a flag that a variable may set.
func (f *remoteFlags) setting(c *cobra.Command, value *string, flag, variable, otherwise, usage string) {
	c.Flags().StringVar(value, flag, cmp.Or(os.Getenv(variable), otherwise), usage+"; or "+variable)
	if strings.HasPrefix(otherwise, "http") {
		term.CompleteFlag(c, flag)
	}
}

func (f *remoteFlags) client(ctx context.Context, stderr io.Writer) (*adminclient.Client, error) {
	client, err := adminclient.New(ctx, f.cfg)
	if err == nil && client.Exposed() {
		fmt.Fprintf(stderr, "warning: the token goes to %s unencrypted: use https://, or a tunnel to its loopback address\n", f.cfg.Admin)
	}
	return client, err
}

// ask asks the admin API. The answer is also put into answer, a pointer.
func (f *remoteFlags) ask(c *cobra.Command, method, path string, body, answer any) (raw json.RawMessage, err error) {
	client, err := f.client(c.Context(), c.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	if method == http.MethodGet {
		raw, err = client.Get(c.Context(), path, answer)
	} else {
		raw, err = client.Post(c.Context(), path, body, answer)
	}
	if err != nil {
		return nil, f.advise(c.Context(), err)
	}
	return raw, nil
}

// call asks the admin API and writes the answer, as it came or for people to read. write may return term.ErrFindings.
func call[A any](c *cobra.Command, f *remoteFlags, method, path string, body any, write func(*A, io.Writer, term.Style) error) error {
	var answer A
	raw, err := f.ask(c, method, path, body, &answer)
	if err != nil {
		return err
	}
	out, s := c.OutOrStdout(), term.NewStyle(c.OutOrStdout())
	if !f.out.IsJSON() {
		return write(&answer, out, s)
	}
	found := write(&answer, io.Discard, s) // for the exit code
	if err := term.WriteJSON(out, raw); err != nil {
		return err
	}
	return found
}
