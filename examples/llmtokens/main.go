// Command llmtokens limits the tokens of a language model. The actual cost is known only after the response: an estimate is
// reserved before the call and settled with the actual cost.
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
		{estimate: 2000, actual: 700},  // 1300 are refunded
		{estimate: 2000, actual: 4500}, // 2500 more are charged
		{estimate: 6000, actual: 0},    // denied: exceeds the remaining quota
	} {
		reservation, err := limiter.Reserve(ctx, "ada", request.estimate)
		if err != nil {
			log.Fatal(err)
		}
		if !reservation.Allowed {
			fmt.Printf("reserve %d: denied, %d remain\n", request.estimate, reservation.Remaining)
			continue
		}
		// … call the model …
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
