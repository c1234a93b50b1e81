// Package memcachestore keeps a limiter's counts in Memcached, shared by any number of processes.
//
//	store, err := memcachestore.Open(memcachestore.Config{Addrs: []string{"10.0.0.1:11211", "10.0.0.2:11211"}})
//	limiter, err := sluice.New(store, "api", sluice.PerMinute(100))
//
// It needs Memcached 1.6, for the meta commands, and nothing of its configuration; it is tested with 1.6.18, and
// [Store.Ping] reports whether a server will do. Close ends the connections. Where there is a choice, Redis decides in
// one round trip instead of two, has a clock, and can keep its memory: see package redisstore.
//
// # Guarantees
//
// A take reads its key's state, decides in this process, and writes the new state by compare-and-swap: if another process
// has written in between, it begins again. However many processes call, exactly the limit is admitted. Callers of one key
// in one process go one after the other, so that only processes compete, and those that wait share the next read and swap.
// A swap is tried again until the call's deadline; [Store.Stats] counts those that were lost. A take that is denied
// only reads.
//
// Takes on one key of one rule in one call are one swap. Takes on several keys are all or nothing too, but another
// process may see some charged and others not yet; if its takes come in between and use up the room of one, the others
// are refunded. So for a moment too much may be counted, never too little. A place in a leaky queue that has another
// behind it meanwhile cannot be refunded and stays taken.
//
// A take with an ID is charged once within a minute. The ID is part of the state that is swapped with its charge, so
// that this holds whichever process sends it how often at the same time, and also when a reply was lost: sent again
// after an error, it is charged if it was not before. One exception is left, in a call on several keys: if two processes
// send it in the same moment and one of them refunds it, the other may have seen it as charged.
//
// # Data loss
//
// Memcached loses all keys when it restarts, and evicts the least recently used when its memory is full. A key that is
// lost is fully reset: each time, a limit may be exceeded by as much as it admits at once (a window's count, a
// bucket's burst), an ID may be charged again, and a block is lifted. Give it memory for all live keys, watch its count
// of evictions, and do not use it for limits that must survive a restart. A server that runs with -M refuses to store
// more when it is full, which is an error here. It then deletes the old state of the key too; the store puts that back,
// but a change by another process within that moment is lost.
//
// When a server is added or removed, its share of the keys is fully reset. A server that is unavailable is not replaced by
// another, which would have no state: calls for its keys fail until it is back.
//
// # Time
//
// Memcached has no clock that could be used, so the callers' are. Keep them synchronised: while clocks are apart by s,
// a limit may be exceeded by its rate × s, once, and a caller whose clock is behind by s is told to wait s longer. A
// state's time never runs backwards. The process' own clock never does either: set back, it runs at half speed until
// the wall clock has caught up.
//
// Memcached drops keys some seconds after their states have expired. A state that lasts beyond 30 days is dropped a day
// later, and one that lasts beyond 18 January 2038, where Memcached's dates end, is dropped then.
//
// # Failure
//
// Whatever goes wrong, a read included, is an error that wraps [sluice.ErrUnavailable], and the limiter's fail mode
// decides; no error is ever taken for a key without state. Each reply must name the key and the number of its command, and
// each value has a checksum of its key, so that no connection out of step and nothing in between can pass off another
// key's counts. Commands that may have been carried out are not sent again: after an error a take may have been charged.
//
// # Security
//
// Stored keys are digests (128 bits of SHA-256): no byte of a caller's key is sent, so that none can be a command. A
// client that can write to Memcached can change every limit; it has no access control worth the name, so keep it in a
// network of its own or use TLS with client certificates. UDP and SASL are not used.
//
// # Memory
//
// A key takes 120 bytes of Memcached's memory with any algorithm but two: a sliding log takes 8 more per request in its
// window, a counter with sub-windows 4 or 8 more for each. An ID takes 20 for its minute. Each server also has one item for
// each rule, with the numbers that it has had: by them a state is read that was written under other numbers.
//
// # Files
//
//	kit*.go            decide on any backend with get and compare-and-swap: one caller per key, batches, encoding, refunds, IDs
//	memcachestore.go   the Store, and which server a key is on
//	server.go          a server of Memcached as a backend: connections, timeouts
//	protocol.go        Memcached's commands and replies
package memcachestore
