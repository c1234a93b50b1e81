// Command quickstart is a minimal example: five requests per minute for each user.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

func main() {
	limiter, err := sluice.New(memstore.New(), "api", sluice.PerMinute(5))
	if err != nil {
		log.Fatal(err)
	}
	for i := 1; i <= 6; i++ {
		d, err := limiter.Allow(context.Background(), "ada")
		if err != nil {
			log.Fatal(err)
		}
		if d.Allowed {
			fmt.Printf("request %d: allowed, %d remain\n", i, d.Remaining)
		} else {
			fmt.Printf("request %d: denied, try again in %.0f s\n", i, d.RetryAfter.Seconds())
		}
	}
}
