// Package memcachestore stores a limiter's state in Memcached, shared by any number of processes.
//
//	store, err := memcachestore.Open(memcachestore.Config{Addrs: []string{"10.0.0.1:11211", "10.0.0.2:11211"}})
//	limiter, err := sluice.New(store, "api", sluice.PerMinute(100))
//
// It needs Memcached 1.6 for the meta commands, with any configuration; it is tested with 1.6.18. [Store.Ping] checks
// that a server is suitable. Close closes the connections. If you can choose, Redis decides in one round trip instead
// of two, has a clock, and can persist its data: see package redisstore.
//
// # Guarantees
//
// A take reads its key's state, decides in this process, and writes the new state by compare-and-swap. If another
// process has written in between, it starts again. Regardless of the number of processes, exactly the limit is
// admitted. Callers of one key in one process are serialized, so that only processes compete, and waiting callers share
// the next read and swap. A swap is retried until the call's deadline; [Store.Stats] counts lost swaps. A denied take
// only reads.
//
// Takes on one key of one rule in one call are one swap. Takes on several keys are all or nothing too, but another
// process may see some charged and others not yet. If that process uses up one of the limits in between, the other
// takes are refunded. So for a moment usage may be too high, never too low. A place in a leaky queue with another place
// behind it cannot be refunded and stays taken.
//
// A take with an idempotency ID is charged once within a minute. The ID is part of the state that is swapped with its
// charge. So this holds for concurrent retries by any process, and after a lost reply: a retry after an error is
// charged only if the first attempt was not. There is one exception, in a call on several keys: if two processes send
// the same ID concurrently and one of them refunds it, the other may have seen it as charged.
//
// # Data loss
//
// Memcached loses all keys when it restarts, and evicts the least recently used keys when its memory is full. The state
// of a lost key is fully reset: each time a limit may be exceeded by as much as it admits at once (a window's count, a
// bucket's burst), an ID may be charged again, and a block is lifted. Provide memory for all live keys, monitor the
// number of evictions, and do not use Memcached for limits that must survive a restart. A server that runs with -M
// rejects writes when it is full, which is an error here. It then also deletes the old state of the key; the store
// restores it, but a concurrent change by another process is lost.
//
// When a server is added or removed, its share of the keys is fully reset. A server that is unavailable is not replaced by
// another, which would have no state: calls for its keys fail until it is back.
//
// # Time
//
// Memcached has no usable clock, so the callers' clocks are used. Keep them synchronized: if clocks differ by s, a
// limit may be exceeded by its rate × s, once, and the RetryAfter of a caller whose clock is behind by s is s too long.
// The time of a state never runs backwards, and neither does the clock of a process: after the wall clock is set back,
// it runs at half speed until the wall clock has caught up.
//
// Memcached removes keys a few seconds after their states expire. A state that lasts longer than 30 days is removed a
// day later, and one that lasts beyond 18 January 2038, where Memcached's dates end, on that day.
//
// # Failures
//
// Every failure, including that of a read, is an error that wraps [sluice.ErrUnavailable], and the limiter's fail mode
// decides; an error is never treated as a key without state. Each reply must contain the key and the number of its
// command, and each value has a checksum that covers its key. So neither a connection that is out of step nor a proxy
// can return another key's state unnoticed. Commands that may have been executed are not resent: after an error a take
// may have been charged.
//
// # Security
//
// Stored keys are digests (128 bits of SHA-256): no byte of a caller's key is sent, so that none can be read as a
// command. A client that can write to Memcached can change every limit, and Memcached has no effective access control.
// Keep it in a separate network or use TLS with client certificates. UDP and SASL are not used.
//
// # Memory
//
// A key takes 120 bytes of Memcached's memory, with two exceptions: a sliding log takes 8 bytes more per request in its
// window, and a counter with sub-windows 4 or 8 bytes more per sub-window. An ID takes 20 bytes for its minute. Each
// server also has one item per rule, with all limit parameters that the rule has had, so that states written under
// other parameters can be converted.
//
// # Files
//
//	kit*.go            decide on any backend with get and compare-and-swap: one caller per key, batches, encoding, refunds, IDs
//	memcachestore.go   the Store, and which server a key is on
//	server.go          a server of Memcached as a backend: connections, timeouts
//	protocol.go        Memcached's commands and replies
package memcachestore
