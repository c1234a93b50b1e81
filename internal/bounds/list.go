package bounds

// Clients.
var (
	Connections = add(clients, &Bound{
		Name: "connections", Default: "10000 per listener", Setting: "listeners.*.max_connections",
		Result: "the new connection is closed",
	})
	ConnectionsPerAddress = add(clients, &Bound{
		Name: "connections_per_address", Default: "25 % of `connections`", Setting: "listeners.*.max_connections_per_address",
		Result: "the new connection is closed; addresses of `trusted_proxies` are exempt, IPv6 counts by /64",
	})
	RequestsPerAddress = add(clients, &Bound{
		Name: "requests_per_address", Default: "2500 in flight at the gateway", Setting: "gateway.max_requests_per_address",
		Result: "429 with `Retry-After: 1`; behind trusted proxies the client's address counts",
	})
	BodySize = add(clients, &Bound{
		Name: "body_size", Default: "10 MiB per route", Setting: "gateway.routes.max_body",
		Result: "413",
	})
)

// Memory.
var (
	BufferedBytes = add(memory, &Bound{
		Name: "buffered_bytes", Default: "128 MiB", Setting: "gateway.max_buffered_size",
		Result: "503 with `Retry-After` for a request to be queued; a response that a rule with `settle` reads is charged its estimate",
	})
	BufferedBytesPerAddress = add(memory, &Bound{
		Name: "buffered_bytes_per_address", Default: "25 % of `buffered_bytes`", Setting: "gateway.max_buffered_size",
		Result: "as `buffered_bytes`, for this client address (IPv6: /64) only",
	})
	SettledBody = add(memory, &Bound{
		Name: "settled_body", Default: "1 MiB per response, or per line of a stream",
		Result: "`settle: {json: …}` does not read the response: it is charged its estimate or `default`",
	})
)

// Durable queue.
var (
	QueueItems = add(queueing, &Bound{
		Name: "queue_items", Default: "100000, dead letters included", Setting: "queue.max_count",
		Result: "503 with `Retry-After`",
	})
	QueueBytes = add(queueing, &Bound{
		Name: "queue_bytes", Default: "1 GiB, dead letters included", Setting: "queue.max_size",
		Result: "503 with `Retry-After`",
	})
	QueueItemsPerKey = add(queueing, &Bound{
		Name: "queue_items_per_key", Default: "25 % of `queue_items`", Setting: "queue.max_count_per_key",
		Result: "429 with `Retry-After`; items of a rule without `per` count for their client address (IPv6: /64)",
	})
	QueueBytesPerKey = add(queueing, &Bound{
		Name: "queue_bytes_per_key", Default: "25 % of `queue_bytes`", Setting: "queue.max_size_per_key",
		Result: "as `queue_items_per_key`",
	})
	QueueItemSize = add(queueing, &Bound{
		Name: "queue_item_size", Default: "1 MiB with headers", Setting: "queue.max_item_size",
		Result: "413; a body whose `Content-Length` is larger is not read",
	})
	QueuedBodyTime = add(queueing, &Bound{
		Name: "queued_body_time", Default: "60 s",
		Result: "408",
	})
)

// Responses of upstreams.
var (
	SlowResponses = add(upstreams, &Bound{
		Name: "http2_responses_waiting", Default: "1024 in the process, 256 KiB each",
		Result: "of the responses of HTTP/2 servers that wait for their clients to read, the one that waits longest is broken off",
	})
)

// Replies of dependencies.
var (
	RedisReply = add(stores, &Bound{
		Name: "redis_reply", Default: "16 MiB, 262144 elements, 16 levels, lines of 64 KiB, pushes of 4 KiB",
		Result: "the connection is closed, and fail modes decide",
	})
	NATSMessage = add(stores, &Bound{
		Name: "nats_message", Default: "64 MiB, lines of 64 KiB", Result: "the connection is closed and made again",
	})
)
