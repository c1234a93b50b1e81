// Package simulate replays access logs through rules, to find the requests that they would have denied. It uses the limiter
// and the memory store of a server, with a clock that follows the log.
//
// A log does not contain all attributes that rules may use, and denied clients may behave differently from the clients of the
// log, which were not denied. A [Report] lists the missing attributes.
package simulate
