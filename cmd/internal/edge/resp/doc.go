// Package resp is a server for Redis clients (RESP2 and RESP3). It implements CL.THROTTLE of the module redis-cell, and the
// commands that clients send when they connect.
//
// A connection is one goroutine with a small buffer. Commands are parsed in place and decided in the order of arrival, and
// replies are written when no complete command is left. With the memory store a command does not allocate. With a remote
// store, pipelined commands are decided concurrently, except those for the same key.
//
// Each CL.THROTTLE call carries its limit. Limits are built once and cached, up to a bound, so that equal arguments use the
// same [sluice.Limit]. All limits belong to the rule [RuleName].
//
// Clients are bounded: arguments and bytes of a command, bytes of a key, the time to send a command, the idle time, and the
// time to read replies.
package resp
