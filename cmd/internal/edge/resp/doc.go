// Package resp answers Redis clients: CL.THROTTLE, as the module redis-cell has it, and what clients say around it.
//
// A connection is one goroutine with a small buffer. Commands are read where they lie in it, each is decided by itself
// through the limiter and in the order in which it came, and the answers are written when no whole command is left. With
// a store in memory a command allocates nothing. With one that asks servers, commands that came together are asked about
// at the same time, but for those about one key.
//
// Limits come with each call. They are built once and kept, up to a bound, so that the same numbers are the same
// [sluice.Limit]; all are of the rule [RuleName].
//
// What a client may send is bounded: the arguments and the bytes of a command, the bytes of a key, how long a command that
// was begun may take, how long nothing may come, how long answers may wait to be read.
package resp
