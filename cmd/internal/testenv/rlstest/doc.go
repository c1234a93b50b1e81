// Package rlstest contains the expected behaviour of a service with Envoy's rate limit protocol, as data: rules,
// requests and responses, in a short format. [Group.Run] sends them to a running server, and does not depend on how the
// server was started or implemented.
package rlstest
