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

// remoteFlags are the flags of commands that call a running service: its URL, TLS files and the output format.
type remoteFlags struct {
	cfg    adminclient.Config
	caller bool // the command uses the check API instead of the admin API
	out    term.Output

	variables []string // environment variables of the flags
}

// adminFlags adds the flags of commands that use the admin API.
func (f *remoteFlags) adminFlags(c *cobra.Command) {
	f.setting(c, &f.cfg.Admin, "admin-url", "SLUICE_ADMIN_URL", adminclient.DefaultAdmin, "URL of the admin API")
	f.setting(c, &f.cfg.TokenFile, "token-file", "SLUICE_TOKEN_FILE", "", "file with the token for the admin API")
	f.cfg.Service = adminclient.DefaultService
	f.commonFlags(c)
}

// serviceFlags adds the flags of commands that use the check API.
func (f *remoteFlags) serviceFlags(c *cobra.Command) {
	f.setting(c, &f.cfg.Service, "service-url", "SLUICE_SERVICE_URL", adminclient.DefaultService, "URL of the HTTP listener")
	f.cfg.Admin, f.caller = adminclient.DefaultAdmin, true
	f.commonFlags(c)
}

func (f *remoteFlags) commonFlags(c *cobra.Command) {
	f.out.AddFlag(c)
	f.setting(c, &f.cfg.CA, "tls-ca", "SLUICE_TLS_CA", "", "PEM file with the CA certificates for the service (default: those of the system)")
	f.setting(c, &f.cfg.Cert, "tls-cert", "SLUICE_TLS_CERT", "", "PEM file with the client certificate")
	f.setting(c, &f.cfg.Key, "tls-key", "SLUICE_TLS_KEY", "", "PEM file with the private key of the client certificate")
}

// setting adds a flag whose default comes from an environment variable.
func (f *remoteFlags) setting(c *cobra.Command, value *string, flag, variable, otherwise, usage string) {
	f.variables = append(f.variables, variable)
	c.Flags().StringVar(value, flag, cmp.Or(os.Getenv(variable), otherwise), usage+"; env "+variable)
	if strings.HasPrefix(otherwise, "http") {
		term.CompleteFlag(c, flag)
	}
}

func (f *remoteFlags) client(ctx context.Context, stderr io.Writer) (*adminclient.Client, error) {
	if err := rejectRenamedVariables(f.variables); err != nil {
		return nil, err
	}
	client, err := adminclient.New(ctx, f.cfg)
	if err == nil && client.Exposed() {
		fmt.Fprintf(stderr, "warning: the token is sent to %s unencrypted: use https://, or a tunnel to the loopback address of the service\n", f.cfg.Admin)
	}
	return client, err
}

// ask calls the admin API, decodes the response into answer, a pointer, and returns the response body too.
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

// call calls the admin API and prints the response, as JSON or with write. write may return term.ErrFindings.
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
