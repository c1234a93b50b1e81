// Package acme tests certificates of a real ACME authority: Pebble, the small one that Let's Encrypt provides for
// tests. It is a separate module, so that no other module inherits its dependencies.
package acme
