package bounds

// Connections.
var (
	Connections = add(clients, &Bound{
		Name: "connections", Default: "10000 per listener", Setting: "listeners.*.max_connections",
		Result: "the new connection is closed",
	})
)
