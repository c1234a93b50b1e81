// Command multiple-limits applies several limits with different keys to one request, all or nothing: posts per user, per
// tenant and in total.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

func main() {
	perUser := sluice.Must(sluice.NewRule(sluice.Rule{Name: "posts-per-user", Limit: sluice.PerMinute(2)}))
	perTenant := sluice.Must(sluice.NewRule(sluice.Rule{Name: "posts-per-tenant", Limit: sluice.PerHour(3).WithAlgorithm(sluice.FixedWindow)}))
	global := sluice.Must(sluice.NewRule(sluice.Rule{Name: "posts", Limit: sluice.PerSecond(10_000)}))

	limiter, err := sluice.NewWithRules(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, user := range []string{"ada", "ada", "ada", "bob", "bob"} {
		takes := []sluice.Take{
			{Rule: perUser, Key: user, Cost: 1},
			{Rule: perTenant, Key: "acme", Cost: 1},
			{Rule: global, Key: "", Cost: 1},
		}
		decisions := make([]sluice.Decision, len(takes))
		allowed, err := limiter.Decide(context.Background(), takes, decisions)
		if err != nil {
			log.Fatal(err)
		}
		if allowed {
			fmt.Printf("%s: allowed\n", user)
			continue
		}
		// None of the three limits was charged.
		tightest := sluice.MostRestrictive(decisions)
		fmt.Printf("%s: denied by %s\n", user, takes[tightest].Rule.Name)
	}
}
