// Package rls implements Envoy's rate limit protocol, envoy.service.ratelimit.v3.RateLimitService, over gRPC.
//
// It has its own message types with a hand-written parser and encoder: a call costs about one allocation, and requests are
// checked against [Bounds] while they are parsed. Generated code is used where speed does not matter: for JSON and server
// reflection.
//
// A [Service] decides. [Register] registers it with a gRPC server, which must be created with [ServerOption].
package rls
