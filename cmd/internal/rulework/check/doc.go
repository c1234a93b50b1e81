// Package check finds what is wrong with rule files and configurations, and what is legal and probably not meant: what
// `sluice check` prints. Warnings about rules by themselves come from package rules (warn.go, domain_warn.go); here is what
// needs the whole configuration, or a trial of the rules.
package check
