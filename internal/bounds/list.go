package bounds

// Clients.
var (
	Connections = add(clients, &Bound{
		Name: "connections", Default: "10000 per listener", Setting: "listeners.*.max_connections",
		Result: "the new connection is closed",
	})
	ConnectionsPerAddress = add(clients, &Bound{
		Name: "connections_per_address", Default: "25 % of `connections`", Setting: "listeners.*.max_connections_per_address",
		Result: "the new connection is closed; addresses of `trusted_proxies` are exempt, IPv6 counts by /64; not on `listeners.admin`",
	})
	Requests = add(clients, &Bound{
		Name: "requests", Default: "10000 in flight at the gateway, as its `connections`", Setting: "gateway.max_requests",
		Result: "503 with `Retry-After: 1`",
	})
	RequestsPerAddress = add(clients, &Bound{
		Name: "requests_per_address", Default: "25 % of `requests`", Setting: "gateway.max_requests_per_address",
		Result: "429 with `Retry-After: 1`; behind trusted proxies the client's address counts",
	})
	BodySize = add(clients, &Bound{
		Name: "body_size", Default: "10 MiB per route", Setting: "gateway.routes.max_body_size",
		Result: "413",
	})
	Headers = add(clients, &Bound{
		Name: "request_headers", Default: "64 KiB at the gateway, 16 KiB elsewhere; HTTP/1 accepts up to 8 KiB more, HTTP/2 320 bytes more, with 32 bytes per field",
		Setting: "listeners.*.max_header_size", Result: "431; counted on HTTP/1 without TLS",
	})
	Streams = add(clients, &Bound{
		Name: "http2_streams", Default: "250 per connection", Setting: "listeners.*.max_streams",
		Result: "further streams wait or are rejected", Elsewhere: Library,
	})
	RequestWindow = add(clients, &Bound{
		Name: "http2_request_window", Default: "1 MiB per connection, 64 KiB per request, of unread data",
		Result: "the client waits until the body is read", Elsewhere: Library,
	})
	HeaderTime = add(clients, &Bound{
		Name: "request_header_time", Default: "5 s with the TLS handshake",
		Result: "the connection is closed", Elsewhere: Library,
	})
	IdleTime = add(clients, &Bound{
		Name: "idle_time", Default: "2 min",
		Result: "the connection is closed", Elsewhere: Library,
	})
	CheckTime = add(clients, &Bound{
		Name: "check_time", Default: "10 s for a request to `listeners.http` or `listeners.admin`, 30 s for its response",
		Result: "the connection is closed", Elsewhere: Library,
	})
	Path = add(clients, &Bound{
		Name: "request_path", Default: "8 KiB, 256 segments",
		Result: "400",
	})
	QueryParameters = add(clients, &Bound{
		Name: "query_parameters", Default: "1000",
		Result: "400",
	})
	Attribute = add(clients, &Bound{
		Name: "attribute_size", Default: "8 KiB of a value that a rule reads",
		Result: "431; 400 in a request to `/v1/check`",
	})
	ForwardedEntries = add(clients, &Bound{
		Name: "forwarded_entries", Default: "64 entries of the header that `client_ip` reads",
		Result: "the last address reached is the client",
	})
	Token = add(clients, &Bound{
		Name: "token_size", Default: "8 KiB of a JWT",
		Result: "401",
	})
	Claims = add(clients, &Bound{
		Name: "token_claims", Default: "256 claims, 4 KiB each",
		Result: "401",
	})
	WrongAttempts = add(clients, &Bound{
		Name: "failed_attempts", Default: "10 wrong credentials per minute and address; also for tokens of `listeners.admin`; for passwords of `listeners.resp` 10, then one per second; both fixed",
		Setting: "authentication.failed_attempts",
		Result:  "429 until attempts are replenished, also for right credentials; RESP: an error, and the connection is closed",
	})
	CredentialChecks = add(clients, &Bound{
		Name: "credential_checks", Default: "one password per two CPUs at once; further ones, and those that need the rest of `failed_attempts`, wait 2 s",
		Result: "503 with `Retry-After: 1`",
	})
	APIKey = add(clients, &Bound{
		Name: "api_key_size", Default: "1 KiB",
		Result: "401",
	})
	RLSMessage = add(clients, &Bound{
		Name: "rls_message_size", Default: "1 MiB", Setting: "listeners.grpc.max_message_size",
		Result: "RESOURCE_EXHAUSTED; above twice the bound the error is gRPC's own and not counted",
	})
	RLSDescriptors = add(clients, &Bound{
		Name: "rls_descriptors", Default: "1000 per request", Setting: "rls.max_descriptors",
		Result: "INVALID_ARGUMENT; 400 over HTTP",
	})
	RLSEntries = add(clients, &Bound{
		Name: "rls_entries", Default: "100 per descriptor, more than a rule can read",
		Result: "further entries are read as one, their digest",
	})
	RLSText = add(clients, &Bound{
		Name: "rls_text", Default: "1024 bytes of a key or value that a rule reads",
		Result: "the request is counted by its SHA-256",
	})
	RESPCommand = add(clients, &Bound{
		Name: "resp_command", Default: "8 KiB, 16 arguments",
		Result: "an error, and the connection is closed",
	})
	RESPKey = add(clients, &Bound{
		Name: "resp_key", Default: "1 KiB",
		Result: "an error",
	})
	CheckBody = add(clients, &Bound{
		Name: "check_body", Default: "64 KiB",
		Result: "413",
	})
	CheckList = add(clients, &Bound{
		Name: "check_list", Default: "100 checks per request",
		Result: "400",
	})
	CheckAttributes = add(clients, &Bound{
		Name: "check_attributes", Default: "256 per check, names of 1 KiB",
		Result: "400",
	})
	Reservation = add(clients, &Bound{
		Name: "reservation_size", Default: "32 KiB, 1024 limits",
		Result: "400",
	})
)

// Memory.
var (
	BufferedBytes = add(memory, &Bound{
		Name: "buffered_bytes", Default: "128 MiB", Setting: "gateway.max_buffered_size",
		Result: "503 with `Retry-After` for a request to be queued; a response that a rule with `actual_cost` reads is charged its estimate",
	})
	BufferedBytesPerAddress = add(memory, &Bound{
		Name: "buffered_bytes_per_address", Default: "25 % of `buffered_bytes`", Setting: "gateway.max_buffered_size",
		Result: "as `buffered_bytes`, for this client address (IPv6: /64) only",
	})
	SettledBody = add(memory, &Bound{
		Name: "settled_body", Default: "1 MiB per response, or per line of a stream",
		Result: "`actual_cost: {json: …}` does not read the response: it is charged its estimate or `default`",
	})
	LogBuffer = add(memory, &Bound{
		Name: "log_buffer", Default: "512 KiB for the log, 4 MiB for the access log",
		Result: "lines are lost; `sluice_log_dropped_lines_total` and `sluice_gateway_access_log_dropped_lines_total` count them",
	})
	StoreMemory = add(memory, &Bound{
		Name: "store_memory", Default: "256 MiB", Setting: "store.max_memory",
		Result: "keys share counters: a key is never allowed more than its limit",
	})
	TraceQueue = add(memory, &Bound{
		Name: "trace_queue", Default: "4096 spans",
		Result: "further spans are dropped", Elsewhere: Library,
	})
	TrackedKeys = add(memory, &Bound{
		Name: "tracked_keys", Default: "10000 leases, 10000 local estimates",
		Result: "further keys are decided by the store", Elsewhere: Library,
	})
	Settlements = add(memory, &Bound{
		Name: "kept_settlements", Default: "10000, keys of 16 MiB together",
		Result: "while the store is unavailable, further settlements are dropped: the estimate stays charged",
	})
	Unreported = add(memory, &Bound{
		Name: "unreported_keys", Default: "262144, keys of 64 MiB together",
		Result: "usage of further keys that was admitted during local fallback is not reported to the store; " +
			"beyond 64 MiB it is reported with the next request for the key",
	})
	DelayLines = add(memory, &Bound{
		Name: "delay_queues", Default: "65536 empty ones",
		Result: "the spacing of an empty delay queue is reset early",
	})
	RESPLimits = add(memory, &Bound{
		Name: "resp_limits", Default: "4096 different limits of `CL.THROTTLE`",
		Result: "one of them is built again when it is next used",
	})
	RememberedLogins = add(memory, &Bound{
		Name: "remembered_logins", Default: "4096",
		Result: "one of them is verified again when it is next used",
	})
	MetricCodes = add(memory, &Bound{
		Name: "metric_codes", Default: "50 per protocol",
		Result: "further status codes are counted as `other`",
	})
)

// Durable queue.
var (
	QueueItems = add(queueing, &Bound{
		Name: "queue_items", Default: "100000, dead letters included", Setting: "queue.max_items",
		Result: "503 with `Retry-After`",
	})
	QueueBytes = add(queueing, &Bound{
		Name: "queue_bytes", Default: "1 GiB, dead letters included", Setting: "queue.max_total_size",
		Result: "503 with `Retry-After`",
	})
	QueueItemsPerKey = add(queueing, &Bound{
		Name: "queue_items_per_key", Default: "25 % of `queue_items`", Setting: "queue.max_items_per_key",
		Result: "429 with `Retry-After`; items of a rule without `per` count for their client address (IPv6: /64)",
	})
	QueueBytesPerKey = add(queueing, &Bound{
		Name: "queue_bytes_per_key", Default: "25 % of `queue_bytes`", Setting: "queue.max_total_size_per_key",
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
	QueueResult = add(queueing, &Bound{
		Name: "queue_result", Default: "64 KiB of a response, 4 KiB of a dead letter's",
		Result: "the stored result is truncated",
	})
	QueueResults = add(queueing, &Bound{
		Name: "queue_results", Default: "256 MiB of all results", Setting: "queue.max_results_size",
		Result: "the oldest are removed", Elsewhere: Library,
	})
	QueueWorkers = add(queueing, &Bound{
		Name: "queue_workers", Default: "16 deliveries at once", Setting: "queue.workers",
		Result: "items wait", Elsewhere: Library,
	})
)

// Responses of upstreams.
var (
	SlowResponses = add(upstreams, &Bound{
		Name: "http2_responses_waiting", Default: "1024 in the process, 256 KiB each",
		Result: "the HTTP/2 response that has waited longest for its client to read is aborted",
	})
	OwnConnections = add(upstreams, &Bound{
		Name: "http2_own_connections", Default: "64 per server, 16 of them per client address (IPv6: /64)",
		Result: "further requests to HTTP/2 servers that would get a dedicated connection share the existing ones, those of their address if it has 16; requests on shared connections never use them",
	})
	Interims = add(upstreams, &Bound{
		Name: "informational_responses_waiting", Default: "8 per request",
		Result: "further 1xx responses that wait for the client to read are dropped",
	})
	UpstreamHeader = add(upstreams, &Bound{
		Name: "upstream_headers", Default: "256 KiB",
		Result: "502; counted for HTTP/1 servers",
	})
	UpstreamTime = add(upstreams, &Bound{
		Name: "upstream_time", Default: "1 s to connect, 30 s for the response headers", Setting: "gateway.upstreams.timeouts",
		Result: "502 or 504", Elsewhere: "sluice_upstream_failures_total",
	})
	SettledCost = add(upstreams, &Bound{
		Name: "settled_cost", Default: "2⁵⁰, of the cost that a response reports to `actual_cost`",
		Result: "2⁵⁰ is charged",
	})
)

// Replies of dependencies.
var (
	RedisReply = add(stores, &Bound{
		Name: "redis_reply", Default: "16 MiB, 262144 elements, 16 levels, lines of 64 KiB, pushes of 4 KiB",
		Result: "the connection is closed, and fail modes decide",
	})
	NATSMessage = add(stores, &Bound{
		Name: "nats_message", Default: "64 MiB, lines of 64 KiB", Result: "the connection is closed and re-established",
	})
	MemcachedReply = add(stores, &Bound{
		Name: "memcached_reply", Default: "256 KiB, lines of 512 bytes",
		Result: "the connection is closed, and fail modes decide",
	})
	MemcachedConnections = add(stores, &Bound{
		Name: "memcached_connections", Default: "64 per server",
		Result: "calls wait within `store.timeout`, then fail modes decide",
	})
	StoreTime = add(stores, &Bound{
		Name: "store_time", Default: "10 ms for each reply, ten times that for a decision", Setting: "store.timeout",
		Result: "fail modes decide", Elsewhere: "sluice_store_errors_total",
	})
	ControlPlane = add(stores, &Bound{
		Name: "control_plane", Default: "200,000 descriptors and limits, 64 deep", Result: "the previous rule set stays in use",
	})
	KeySet = add(stores, &Bound{
		Name: "key_set", Default: "256 KiB, 100 keys, 10 s",
		Result: "the last valid keys stay in use",
	})
)

// Files.
var (
	RuleFiles = add(files, &Bound{
		Name: "rule_files", Default: "1 MiB per file, 16 MiB, 1000 files and 10000 documents in all",
		Result: "the files are rejected; the previous rule set stays in use",
	})
	YAML = add(files, &Bound{
		Name: "yaml", Default: "1 MiB, 32 levels, 100000 values, 1000 documents",
		Result: "the files are rejected; the previous rule set stays in use",
	})
	Rules = add(files, &Bound{
		Name: "rules", Default: "100000",
		Result: "the files are rejected; the previous rule set stays in use",
	})
)

// Operators.
var (
	AdminBody = add(operators, &Bound{
		Name: "admin_body", Default: "64 KiB",
		Result: "413",
	})
	AdminWatchers = add(operators, &Bound{
		Name: "admin_watchers", Default: "16",
		Result: "503",
	})
	Scrapes = add(operators, &Bound{
		Name: "metrics_scrapes", Default: "4 at once",
		Result: "503", Elsewhere: Library,
	})
)
