// Package sample represents requests in tests of rules and on command lines: `POST /posts`, with headers, cookies,
// claims and an address, or the descriptors of an Envoy domain.
package sample
