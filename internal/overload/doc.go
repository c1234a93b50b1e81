// Package overload decides whom to turn away when not all can be served.
//
// A [Gate] stands before an upstream and bounds the requests that are in flight there. The bound is learnt: it is the
// gate's maximum until the upstream is seen to be overloaded, and returns there afterwards. What is seen is how long
// answers take, beside how long they take without load, and how many fail.
//
// A [Process] watches how long goroutines wait for a processor, and tells how much has to be turned away because this
// process itself cannot keep up.
//
// Both turn away low priorities first. Neither has a queue: who is turned away learns so at once, and the queue that an
// overload makes is the one that the upstream has anyway.
package overload
