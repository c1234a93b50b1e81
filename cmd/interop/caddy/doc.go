// Package caddy pins Caddy, as its makers build it.
//
// It is a tool of a module of its own, so that it is built with the dependencies it asks for and nobody else downloads
// them:
//
//	go build -o /tmp/caddy/ tool
package caddy
