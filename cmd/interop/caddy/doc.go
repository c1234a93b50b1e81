// Package caddy pins Caddy, as its authors build it.
//
// It is a tool of a separate module, so that it is built with its own versions of dependencies and no other module
// downloads them:
//
//	go build -o /tmp/caddy/ tool
package caddy
