package main

import (
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
)

// Text from the service is untrusted: it is printed without control characters.
func TestProblemsArePrintable(t *testing.T) {
	var f remoteFlags
	for _, p := range []adminclient.ProblemError{
		{Status: 400, Title: "Bad Request", Detail: "no\x1b[31m\nGET /v1/rules"},
		{Status: 404, Title: "Not Found", Detail: "no\x1b[31m"},
		{Status: 500, Title: "\x1b[31m"},
	} {
		got := f.advise(t.Context(), &p).Error()
		if strings.ContainsAny(got, "\x1b\n") || p.Status == 400 && got != "no\ufffd[31m; sluice status --rules" {
			t.Errorf("got %q", got)
		}
	}
}
