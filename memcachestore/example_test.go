package memcachestore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memcachestore"
)

// Several processes share limits.
func Example() {
	store, err := memcachestore.Open(memcachestore.Config{Addrs: []string{"127.0.0.1:11211"}})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	limiter, err := sluice.New(store, "api", sluice.PerMinute(100))
	if err != nil {
		log.Fatal(err)
	}
	d, err := limiter.Allow(context.Background(), "alice")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Allowed, d.Remaining)
}

// A service connects and checks the servers before it reports ready.
func ExampleOpen() {
	ctx := context.Background()
	store, err := memcachestore.Open(memcachestore.Config{Addrs: []string{"127.0.0.1:11211"}})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if err := store.Connect(ctx); err != nil {
		log.Print("not connected yet: ", err)
	}
	fmt.Println(store.Ping(ctx), store.Stats().RoundTrips)
}
