// Command llmtokens limits a language model by tokens. What an answer costs is known only afterwards: an estimate is
// reserved before, and settled by what it really was.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

func main() {
	ctx := context.Background()
	limiter, err := sluice.New(memstore.New(), "tokens-per-user", sluice.PerHour(10_000))
	if err != nil {
		log.Fatal(err)
	}
	for _, request := range []struct{ estimate, actual int64 }{
		{estimate: 2000, actual: 700},  // 1300 are given back
		{estimate: 2000, actual: 4500}, // 2500 more are charged
		{estimate: 6000, actual: 0},    // does not fit any more
	} {
		reservation, err := limiter.Reserve(ctx, "ada", request.estimate)
		if err != nil {
			log.Fatal(err)
		}
		if !reservation.Allowed {
			fmt.Printf("reserve %d: denied, %d remain\n", request.estimate, reservation.Remaining)
			continue
		}
		// … ask the model …
		if err := reservation.Settle(ctx, request.actual); err != nil {
			log.Fatal(err)
		}
		d, err := limiter.Peek(ctx, "ada")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("reserve %d, settle at %d: %d remain\n", request.estimate, request.actual, d.Remaining)
	}
}
