// Package overload decides which requests to shed when not all can be served.
//
// An [AdaptiveLimiter] bounds the requests in flight to an upstream. The bound adapts: it is the
// limiter's maximum until the upstream is overloaded, and returns there afterwards. The limiter measures how long
// responses take, compares it with how long they take without load, and counts failures.
//
// A [CPUPressure] measures how long goroutines wait for a processor, and how many requests must be shed because this
// process itself cannot keep up.
//
// Both shed low priorities first. Neither has a queue: a shed request is answered at once, and the queue that an
// overload makes is the one that the upstream has anyway.
package overload
