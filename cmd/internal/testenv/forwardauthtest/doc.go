// Package forwardauthtest tests any proxy that uses Sluice for forward authentication, as its clients see it: the
// limits of examples/auth, the responses with their headers, and attempts to evade a limit.
package forwardauthtest
