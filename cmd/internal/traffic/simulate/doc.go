// Package simulate replays access logs through rules, to see whom they would have denied. What decides is the limiter and
// the memory store of a server, on a clock that goes as the log says.
//
// A log does not hold all that rules may ask for, and clients that are denied may behave otherwise than those of a log, who
// were not. A [Report] says what it could not see.
package simulate
