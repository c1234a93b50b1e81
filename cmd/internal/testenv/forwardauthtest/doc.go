// Package forwardauthtest is what a client sees of a proxy that asks Sluice about each request, whatever proxy it is: the limits
// of examples/auth, the answers with their headers, and tricks that must not get around a limit.
package forwardauthtest
