// Command wait paces work instead of refusing it: a client that may call another party's API five times a second.
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

	// A caller with too little time learns so at once, and spends nothing.
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err = limiter.Wait(ctx, "upstream")
	fmt.Println("in a hurry:", errors.Is(err, context.DeadlineExceeded))
}
