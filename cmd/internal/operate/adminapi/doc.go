// Package adminapi is the HTTP API for operators: it shows rules, their decisions and the state of keys, resets and blocks
// keys, suspends rules, and reloads rule files. It has its own listener.
//
// Requests are authorized by a token or a client certificate, or because the listener is reachable only over loopback.
// Requests that a web page in a local browser could send are rejected. Every change is logged in one line.
package adminapi
