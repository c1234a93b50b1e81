// Package interop tests Sluice with servers and clients of other projects.
//
// The reference is envoyproxy/ratelimit, built from its own module (see the folder reference) with its own versions of
// dependencies. The tests give it and `sluice ratelimit` the same files, the same environment and the same requests,
// and fail on every difference that the table in differences_test.go does not list.
//
// Caddy, also built from its own module (see the folder caddy), uses `sluice serve` as in examples/caddy.
//
// Run the tests with `make interop`. SLUICE_BINARY names a binary to test instead of building one.
package interop
