// Package acme has certificates asked for at a real authority: Pebble, the small one that Let's Encrypt tests clients with.
// It is a module of its own, so that nobody inherits its dependencies.
package acme
