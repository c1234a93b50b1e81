// Package sample has requests as people write them down, in tests of rules and on command lines: `POST /posts`, with
// headers, cookies, claims and an address, or the descriptors of an Envoy domain.
package sample
