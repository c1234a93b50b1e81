// Package overload decides which requests to shed under overload.
//
// An [AdaptiveLimiter] bounds the requests in flight to an upstream. The bound is its maximum until the upstream is
// overloaded, and returns there afterwards. The limiter compares the latency of responses with the latency without load, and
// counts failures.
//
// A [CPUPressure] measures how long goroutines wait for a processor, and determines the share of requests to shed because
// this process cannot keep up.
//
// Both shed low priorities first. Neither queues requests: a shed request gets its response at once, and the only queue under
// overload is that of the upstream.
package overload
