package main

import "testing"

// When rule files with errors are restored to their previous content, the log has a line for it, because its last line would
// otherwise be an error that no longer exists.
func TestRulesUsableAgain(t *testing.T) {
	const rules = "rules: [{name: all, limit: 2/h}]\n"
	p, _ := startGateway(t, "{upstreams: {api: {servers: 'http://127.0.0.1:1'}}, routes: [{path: '/{x}', upstream: api}]}", rules, "")
	for range 2 {
		write(t, p.rules, "rules: [{name: all, limit: few}]\n")
		p.await(t, `level=ERROR msg="rules reload failed: previous rule set stays in use"`)
		write(t, p.rules, rules)
		p.await(t, `level=INFO msg="rule files valid again" rules_digest=`)
	}
}
