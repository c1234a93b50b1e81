package main

import (
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// A route that has changed in the configuration file is not applied by a reload, and a reload says so: to the operator and in
// the log.
func TestReloadSaysRestartNeeded(t *testing.T) {
	p, _ := startGateway(t, "{upstreams: {api: {servers: 'http://127.0.0.1:1'}}, routes: [{path: /a, upstream: api}]}", "rules: []", "")
	p.asked(t)
	ask{"reload", term.ExitFine, "the rules are as they were"}.run(t)
	file := p.cmd.Args[len(p.cmd.Args)-1]
	before := read(t, file)
	write(t, file, strings.Replace(before, "path: /a", "path: /b", 1))
	ask{"reload", term.ExitFindings, "restart needed for changed settings: gateway.routes\n"}.run(t)
	write(t, file, "gatewy: {}\n")
	ask{"reload", term.ExitFindings, "a restart would fail: "}.run(t)
	write(t, file, before)
	ask{"reload", term.ExitFine, "the rules are as they were"}.run(t)
	p.await(t, `msg="restart needed" settings=gateway.routes`)
	p.await(t, "a restart would fail")
}
