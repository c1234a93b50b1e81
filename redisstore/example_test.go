package redisstore_test

import (
	"context"
	"fmt"
	"log"

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
