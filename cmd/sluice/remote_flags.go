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
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// liveFlags say which running service a command asks.
type liveFlags struct {
	cfg    adminclient.Config
	caller bool // it asks as callers do
}

// adminFlags are for commands that ask the admin API.
func (f *liveFlags) adminFlags(c *cobra.Command) {
	f.setting(c, &f.cfg.Admin, "admin", "SLUICE_ADMIN", adminclient.DefaultAdmin, "where the service answers operators")
	f.setting(c, &f.cfg.TokenFile, "token-file", "SLUICE_TOKEN_FILE", "", "file with the token of the admin API")
	f.cfg.Service = adminclient.DefaultService
	f.tlsFlags(c)
}

// serviceFlags are for commands that ask as callers do.
func (f *liveFlags) serviceFlags(c *cobra.Command) {
	f.setting(c, &f.cfg.Service, "service", "SLUICE_SERVICE", adminclient.DefaultService, "where the service answers callers")
	f.cfg.Admin, f.caller = adminclient.DefaultAdmin, true
	f.tlsFlags(c)
}

func (f *liveFlags) tlsFlags(c *cobra.Command) {
	f.setting(c, &f.cfg.CA, "ca", "SLUICE_CA", "", "file with the authority of the service's certificate")
	f.setting(c, &f.cfg.Cert, "cert", "SLUICE_CERT", "", "file with the certificate to show the service")
	f.setting(c, &f.cfg.Key, "key", "SLUICE_KEY", "", "file with that certificate's key")
}

// setting adds a flag that a variable may set.
func (f *liveFlags) setting(c *cobra.Command, value *string, flag, variable, otherwise, usage string) {
	c.Flags().StringVar(value, flag, cmp.Or(os.Getenv(variable), otherwise), usage+"; or "+variable)
	if strings.HasPrefix(otherwise, "http") {
		term.CompleteFlag(c, flag)
	}
}

func (f *liveFlags) client(ctx context.Context, stderr io.Writer) (*adminclient.Client, error) {
	client, err := adminclient.New(ctx, f.cfg)
	if err == nil && client.Exposed() {
		fmt.Fprintf(stderr, "warning: the token goes to %s unencrypted: use https://, or a tunnel to its loopback address\n", f.cfg.Admin)
	}
	return client, err
}

// call asks the admin API and writes the answer, as it came or for people to read. write may return errFindings.
func call[A any](c *cobra.Command, f *liveFlags, o *term.Output, method, path string, body any, write func(*A, io.Writer, term.Style) error) error {
	client, err := f.client(c.Context(), c.ErrOrStderr())
	if err != nil {
		return err
	}
	var answer A
	var raw json.RawMessage
	if method == http.MethodGet {
		raw, err = client.Get(c.Context(), path, &answer)
	} else {
		raw, err = client.Post(c.Context(), path, body, &answer)
	}
	if err != nil {
		return f.advise(c.Context(), err)
	}
	out, s := c.OutOrStdout(), term.NewStyle(c.OutOrStdout())
	if !o.IsJSON() {
		return write(&answer, out, s)
	}
	found := write(&answer, io.Discard, s) // for the exit code
	if err := term.WriteJSON(out, raw); err != nil {
		return err
	}
	return found
}

// keyText writes whom a bucket counts for as it is written on a command line: user=ada.
func keyText(key adminmsg.Key) string {
	parts := make([]string, len(key))
	for i, e := range key {
		parts[i] = term.ShellQuoted(e.Key + "=" + e.Value)
	}
	return strings.Join(parts, " ")
}

// bucketText names a bucket: posts-per-user user=ada.
func bucketText(rule string, key adminmsg.Key) string {
	return strings.TrimSpace(term.ShellQuoted(rule) + " " + keyText(key))
}

// liveRules asks which rules there are, for advice and for shells that complete a name. It gives up soon.
func liveRules(ctx context.Context, client *adminclient.Client) []adminmsg.Rule {
	ctx, cancel := context.WithTimeout(ctx, time.Second/2)
	defer cancel()
	var answer adminmsg.Rules
	if _, err := client.Get(ctx, "/v1/rules", &answer); err != nil {
		return nil
	}
	return answer.Rules
}
