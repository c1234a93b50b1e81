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

// advise says what to do about an error of the service, or about there being none.
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
		return fmt.Errorf("%w. Its state is at %s; this command needs sluice serve, whose %s API is named with %s",
			ratelimit, state, ratelimit.API, f.flag())
	}
	return err
}

// flag is which flag says where the service is.
func (f *remoteFlags) flag() string {
	if f.caller {
		return "--service or SLUICE_SERVICE"
	}
	return "--admin or SLUICE_ADMIN"
}

func (f *remoteFlags) unreachable(e *adminclient.UnreachableError) error {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	text := e.Err.Error()
	where := fmt.Sprintf("say where it is with %s", f.flag())
	switch {
	case errors.Is(e.Err, syscall.ECONNREFUSED), errors.Is(e.Err, os.ErrNotExist):
		return fmt.Errorf("no service answers at %s: start one with: sluice serve --config sluice.yaml\nor %s", e.URL, where)
	case errors.Is(e.Err, os.ErrPermission):
		return fmt.Errorf("%s may not be opened: become its owner, such as with: sudo -u sluice sluice …", e.URL)
	case errors.As(e.Err, &authority):
		return fmt.Errorf("the certificate at %s is signed by an authority that this machine does not know: name its file with --ca or SLUICE_CA", e.URL)
	case errors.As(e.Err, &host):
		return fmt.Errorf("the certificate at %s is for another name: %w: use one of its names with %s", e.URL, host, f.flag())
	case strings.Contains(text, "certificate required"), strings.Contains(text, "bad certificate"):
		return fmt.Errorf("the service at %s wants a certificate that its client_ca has signed: name it with --cert and --key", e.URL)
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("%s does not speak TLS: write http://", e.URL)
	case os.IsTimeout(e.Err):
		return fmt.Errorf("%s does not answer in time: is the network open to it? Or %s", e.URL, where)
	}
	return fmt.Errorf("%w: look at the service's log, or %s", e, where)
}

func (f *remoteFlags) problem(p *adminclient.ProblemError) error {
	switch {
	case p.Foreign && strings.Contains(p.Text, "HTTP request to an HTTPS server"):
		return fmt.Errorf("%s speaks TLS: write https://", p.URL)
	case p.Status == http.StatusUnauthorized && !p.Token:
		return fmt.Errorf("the service at %s wants a token: name the file that admin.token_file names there with --token-file or SLUICE_TOKEN_FILE", p.URL)
	case p.Status == http.StatusUnauthorized:
		return fmt.Errorf("the token in %s is not that of the service at %s: compare it with the file that admin.token_file names there", f.cfg.TokenFile, p.URL)
	case p.Foreign:
		return fmt.Errorf("%w: say where the service is with %s; its status tells its listeners: sluice status", p, f.flag())
	}
	p.Title, p.Detail = term.Printable(p.Title), term.Printable(inCommands.Replace(p.Detail))
	if p.Status == http.StatusNotFound && !strings.Contains(p.Detail, "sluice ") && !strings.Contains(p.Detail, "did you mean") {
		return fmt.Errorf("%w; to see what counts: sluice status --rules", p)
	}
	return p
}

// inCommands has the service's advice name commands instead of calls.
var inCommands = strings.NewReplacer(
	"?: GET /v1/rules lists them", "?", // "did you mean posts-per-user?"
	"POST /v1/explain", "sluice explain --live",
	"GET /v1/rules", "sluice status --rules",
	"GET /v1/status", "sluice status",
	"GET /v1/queue", "sluice queue list",
	"\n", "; ",
)
