// Package check finds errors in rule files and configurations, and valid but probably unintended parts, for `sluice
// check`. Warnings about rules alone come from package rules (warn.go, domain_warn.go); this package adds those that
// need the whole configuration or a trial of the rules.
package check
