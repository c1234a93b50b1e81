// Package loadgen is a load generator: it sends requests to a server and measures throughput and latency.
//
// In a closed loop each caller sends its next request when it has a response: this measures the capacity of a server. In an
// open loop requests are sent at a fixed rate, regardless of the server, as independent clients do: this measures their
// latency. There, latency is measured from the scheduled time of a request. If all callers are busy, the request is sent
// late and the delay counts, so that a stalled server does not look fast (no coordinated omission).
//
// A [Target] is a server and its protocol: [NewRLS], [NewHTTP], [NewRESP]. [Run] runs a [Plan].
//
// Every request that was sent, or scheduled, is counted once in a [Result]: as Allowed, Denied, Failed or Cut.
package loadgen
