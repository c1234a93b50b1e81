package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/redisstore"
)

// Many processes share a limit of 100 requests per minute and user.
func Example() {
	store, err := redisstore.Open(redisstore.Config{URL: "redis://localhost:6379"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := sluice.New(store, "api", sluice.PerMinute(100))
	if err != nil {
		log.Fatal(err)
	}
	d, err := limiter.Allow(context.Background(), "user 1")
	if err != nil {
		log.Fatal(err)
	}
	if !d.Allowed {
		fmt.Println("try again in", d.RetryAfter)
	}
}

// A server that announces a reply of ten terabytes does not make the process allocate them.
func ExampleGuard() {
	conn, server := net.Pipe()
	go func() { _, _ = io.WriteString(server, "$9999999999999\r\n") }()
	guarded := redisstore.Guard(conn, "localhost:6379")
	_, err := guarded.Read(make([]byte, 100))
	fmt.Println(err)
	// Output: Redis localhost:6379: reply rejected, connection closed: reply of 9999999999999 bytes, maximum 16777216
}

// Check validates a configuration without a server.
func ExampleConfig_Check() {
	fmt.Println(redisstore.Config{URL: "redis://localhost:6379"}.Check())
	fmt.Println(redisstore.Config{URL: "http://localhost:6379"}.Check())
	// Output:
	// <nil>
	// redisstore: configuration error: Config.URL is not of the form redis://user:password@host:6379/0, rediss://… with TLS or unix://…
}

// While the store is unavailable, each instance admits its share of the limit, for which it needs the number of
// instances.
func ExampleStore_Heartbeat() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store := sluice.Must(redisstore.Open(redisstore.Config{URL: "redis://localhost:6379"}))
	defer store.Close()
	if err := store.Join(ctx); err != nil {
		log.Print("the number of instances is unknown: ", err)
	}
	go func() { _ = store.Heartbeat(ctx) }()

	limiter := sluice.Must(sluice.New(store, "api", sluice.PerMinute(100), sluice.WithInstances(store.Instances)))
	defer limiter.Close(ctx)
	fmt.Println(store.Ping(ctx), store.Instances(), store.FailoverRestores())
	fmt.Println(store.ShardServers(ctx))
}
