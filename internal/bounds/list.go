package bounds

// Connections.
var (
	Connections = add(clients, &Bound{
		Name: "connections", Default: "10000 per listener", Setting: "listeners.*.max_connections",
		Result: "the new connection is closed",
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
