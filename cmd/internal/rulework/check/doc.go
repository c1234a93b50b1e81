// Package check finds what is wrong with rule files and configurations, and what is legal and probably not meant: what
// `sluice check` prints.
package check
