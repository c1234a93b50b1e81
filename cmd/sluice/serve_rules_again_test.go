package main

import "testing"

// Rules that were broken and are again what they were have a line of their own in the log: the last one must not be an error that
// is over.
func TestRulesUsableAgain(t *testing.T) {
	const rules = "rules: [{name: all, limit: 2/h}]\n"
	p, _ := startGateway(t, "{upstreams: {api: {servers: 'http://127.0.0.1:1'}}, routes: [{path: '/{x}', upstream: api}]}", rules, "")
	for range 2 {
		write(t, p.rules, "rules: [{name: all, limit: few}]\n")
		p.await(t, `level=ERROR msg="rules cannot be used: keeping the last good ones"`)
		write(t, p.rules, rules)
		p.await(t, `level=INFO msg="rules can be used again" digest=`)
	}
}
