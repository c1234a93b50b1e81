// Package explain explains how rules match a request, the outcome, and the remaining quota of the limits that apply,
// for `sluice explain` and the admin API.
package explain
