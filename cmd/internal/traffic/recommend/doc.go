// Package recommend finds the limit that fits recorded traffic, with its evidence: `sluice recommend`.
//
// For one key and one rate, the smallest burst that denies nothing is the largest backlog of a queue that is drained at that
// rate, rounded up. The [Traffic] of a log is split into time blocks: the even ones train, the odd ones validate. At each rate
// the bursts of all keys give one point of the frontier; clients far above the others are outliers and do not raise it. The
// recommendation is the knee of the frontier. It is replayed through the limiter and the memory store of a server.
package recommend
