package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// advise adds advice to an error of a call to the service.
func (f *remoteFlags) advise(ctx context.Context, err error) error {
	var away *adminclient.UnreachableError
	var problem *adminclient.ProblemError
	var ratelimit *adminclient.RatelimitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &away):
		return f.unreachable(away)
	case errors.As(err, &problem):
		return f.problem(problem)
	case errors.As(err, &ratelimit):
		state := fmt.Sprintf("%s/rlconfig and %[1]s/stats", ratelimit.URL)
		if !ratelimit.Debug {
			state = "/rlconfig and /stats of its debug port (DEBUG_PORT, 6070 by default)"
		}
		return fmt.Errorf("%w. Its state is at %s. This command needs sluice serve: set the URL of its %s API with %s",
			ratelimit, state, ratelimit.API, f.flag())
	}
	return err
}

// flag returns the names of the flag and the variable with the URL of the service.
func (f *remoteFlags) flag() string {
	if f.caller {
		return "--service-url or SLUICE_SERVICE_URL"
	}
	return "--admin-url or SLUICE_ADMIN_URL"
}

func (f *remoteFlags) unreachable(e *adminclient.UnreachableError) error {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	text := e.Err.Error()
	where := fmt.Sprintf("set its URL with %s", f.flag())
	switch {
	case errors.Is(e.Err, syscall.ECONNREFUSED), errors.Is(e.Err, os.ErrNotExist):
		return fmt.Errorf("no service listens at %s: start it with sluice serve --config sluice.yaml\nor %s", e.URL, where)
	case errors.Is(e.Err, os.ErrPermission):
		return fmt.Errorf("no permission to open %s: run the command as the owner of the socket, for example with sudo -u sluice sluice …", e.URL)
	case errors.As(e.Err, &authority):
		return fmt.Errorf("the certificate of %s is signed by an unknown certificate authority: set the CA file with --tls-ca or SLUICE_TLS_CA", e.URL)
	case errors.As(e.Err, &host):
		return fmt.Errorf("the certificate of %s is for another host name: %w: use a host name of the certificate in %s", e.URL, host, f.flag())
	case strings.Contains(text, "certificate required"), strings.Contains(text, "bad certificate"):
		return fmt.Errorf("the service at %s requires a client certificate signed by its client CA: set it with --tls-cert and --tls-key", e.URL)
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("%s does not use TLS: write http://", e.URL)
	case os.IsTimeout(e.Err):
		return fmt.Errorf("timeout: no response from %s: check the network and firewalls, or %s", e.URL, where)
	}
	return fmt.Errorf("%w: see the log of the service, or %s", e, where)
}

func (f *remoteFlags) problem(p *adminclient.ProblemError) error {
	switch {
	case p.Foreign && strings.Contains(p.Text, "HTTP request to an HTTPS server"):
		return fmt.Errorf("%s uses TLS: write https://", p.URL)
	case p.Status == http.StatusUnauthorized && !p.Token:
		return fmt.Errorf("the service at %s requires a token: set a file with the token of its admin.token_file with --token-file or SLUICE_TOKEN_FILE", p.URL)
	case p.Status == http.StatusUnauthorized:
		return fmt.Errorf("the token in %s is not accepted by the service at %s: compare it with the file in its admin.token_file", f.cfg.TokenFile, p.URL)
	case p.Foreign:
		return fmt.Errorf("%w: set the URL of the service with %s; sluice status shows the listeners of a service", p, f.flag())
	}
	p.Title, p.Detail = term.Printable(p.Title), term.Printable(inCommands.Replace(p.Detail))
	if p.Status == http.StatusNotFound && !strings.Contains(p.Detail, "sluice ") && !strings.Contains(p.Detail, "did you mean") {
		return fmt.Errorf("%w; sluice status --rules lists all rules", p)
	}
	return p
}

// inCommands replaces API calls in the advice of the service by commands.
var inCommands = strings.NewReplacer(
	"?: GET /v1/rules lists them", "?", // "did you mean posts-per-user?"
	"POST /v1/explain", "sluice explain --live",
	"POST /v1/reset for one key", "sluice reset RULE NAME=VALUE for one key",
	"POST /v1/peek", "sluice peek",
	"GET /v1/top", "sluice top",
	"GET /v1/rules", "sluice status --rules",
	"GET /v1/status", "sluice status",
	"GET /v1/queue", "sluice queue list",
	"\n", "; ",
)
