// Command wait delays calls instead of denying them: a client of an API that allows five calls per second.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

func main() {
	limiter, err := sluice.New(memstore.New(), "calls", sluice.PerSecond(5).WithBurst(1))
	if err != nil {
		log.Fatal(err)
	}
	began := time.Now()
	for i := 1; i <= 5; i++ {
		if err := limiter.Wait(context.Background(), "upstream"); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("call %d after about %d00 ms\n", i, time.Since(began).Milliseconds()/100)
	}

	// Wait fails at once, and charges nothing, if the deadline is too soon.
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err = limiter.Wait(ctx, "upstream")
	fmt.Println("deadline exceeded:", errors.Is(err, context.DeadlineExceeded))
}
