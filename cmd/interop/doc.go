// Package interop runs Sluice beside other people's servers and clients.
//
// The reference is envoyproxy/ratelimit, built from its own module (see the folder reference) and run with the versions
// of its dependencies that it asks for. The tests give it and `sluice ratelimit` the same files, the same environment and
// the same requests, and fail on every difference that the table in differences_test.go does not name.
//
// Caddy, likewise built from its own module (see the folder caddy), asks `sluice serve` as examples/caddy has it.
//
// Run them with `make interop`. SLUICE_BINARY names a binary to test instead of building one.
package interop
