// Package rls speaks Envoy's rate limit protocol, envoy.service.ratelimit.v3.RateLimitService, over gRPC.
//
// It has messages of its own with a parser and a writer written by hand: an answer costs about one allocation, and what a
// request may hold is bounded before anything is done with it. Generated code is used where speed does not matter: JSON
// and server reflection.
//
// A [Service] decides. [Register] makes it a gRPC server's, which has to be made with [ServerOption].
package rls
