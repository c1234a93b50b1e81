// Package authn authenticates requests by API key, signed token (JWT), or user name and password.
//
// Each of these is a [Method]. A [Chain] combines the methods of a route: [Chain.Admit] returns the identity or the rejection of a
// request, and [Chain.Strip] removes credentials from forwarded requests.
//
// Invariants:
//
//   - Credentials are in no log, error or identity. Account files contain only hashes.
//   - The first method that finds credentials of its kind decides. Wrong credentials are rejected, and no other method is tried.
//   - The time of a rejection reveals neither how close a guess was nor which users exist.
//   - An invalid file never replaces a valid one.
//   - Identity headers (such as X-User) from clients are removed from every request.
package authn
