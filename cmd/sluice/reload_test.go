package main

import (
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// A reload does not apply a changed route of the configuration file. The command and the log report that a restart is needed.
func TestReloadSaysRestartNeeded(t *testing.T) {
	p, _ := startGateway(t, "{upstreams: {api: {servers: 'http://127.0.0.1:1'}}, routes: [{path: /a, upstream: api}]}", "rules: []", "")
	p.asked(t)
	ask{"reload", term.ExitFine, "the rules have not changed"}.run(t)
	file := p.cmd.Args[len(p.cmd.Args)-1]
	before := read(t, file)
	write(t, file, strings.Replace(before, "path: /a", "path: /b", 1))
	ask{"reload", term.ExitFindings, "changed settings that need a restart: gateway.routes\n"}.run(t)
	write(t, file, "gatewy: {}\n")
	ask{"reload", term.ExitFindings, "a restart would fail:\n  "}.run(t)
	write(t, file, before)
	ask{"reload", term.ExitFine, "the rules have not changed"}.run(t)
	p.await(t, `msg="restart required" settings=gateway.routes`)
	p.await(t, "a restart would fail")
}
