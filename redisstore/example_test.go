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

// Many processes share a limit of a hundred a minute for each user.
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

// A server that announces ten terabytes does not make the process allocate them.
func ExampleGuard() {
	conn, server := net.Pipe()
	go func() { _, _ = io.WriteString(server, "$9999999999999\r\n") }()
	guarded := redisstore.Guard(conn, "localhost:6379")
	_, err := guarded.Read(make([]byte, 100))
	fmt.Println(err)
	// Output: Redis localhost:6379: reply rejected, connection closed: reply of 9999999999999 bytes, maximum 16777216
}
