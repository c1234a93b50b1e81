// Package loadgen asks a server as hard as it is told to and measures what callers would see.
//
// A closed loop has callers who each ask again when they have an answer: it finds out what a server can do. An open loop
// asks at a fixed rate, whatever the server does, as strangers would: it finds out how long they wait. There, latency
// counts from when a request was due. If callers are all still waiting, it goes out late and the time that it waited to be
// sent counts: a server that stalls is not spared the requests of that time.
//
// A [Target] is a server and how it is asked: [NewRLS], [NewHTTP], [NewRESP]. [Run] carries out a [Plan].
//
// Every request that was sent, or was due, is one of a [Result]'s Allowed, Denied, Failed and Cut.
package loadgen
