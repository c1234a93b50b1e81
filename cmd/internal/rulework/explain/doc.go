// Package explain says what rules make of a request, why, and what is left of the limits that apply: what `sluice explain`
// and the admin API answer.
package explain
