package rules_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// published contains the two files of Lyft's announcement of the format: 5 marketing messages a day, 5 logins a minute.
var published = rules.Config{Domains: []rules.Domain{
	{Name: "messaging", Descriptors: []rules.DescriptorRule{{
		Key: "message_type", Value: "marketing",
		Limits: []rules.Limit{{Limit: sluice.PerDay(5).WithAlgorithm(sluice.FixedWindow)}},
	}}},
	{Name: "auth", Descriptors: []rules.DescriptorRule{{
		Key: "auth_type", Value: "login",
		Limits: []rules.Limit{{Limit: sluice.PerMinute(5).WithAlgorithm(sluice.FixedWindow)}},
	}}},
}}

func ExampleSet_MatchDescriptors() {
	set := sluice.Must(rules.New(published))
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	store := sluice.Must(memstore.Open(memstore.Config{Now: func() time.Time { return noon }}))
	limiter := sluice.Must(sluice.NewWithRules(store, nil))

	request := []rules.Descriptor{{Entries: []rules.Entry{{Key: "auth_type", Value: "login"}}, Cost: 1}}
	var matched rules.DescriptorMatches
	for range 6 {
		set.MatchDescriptors("auth", request, &matched)
		decisions := make([]sluice.Decision, len(matched.Takes))
		allowed, err := limiter.Decide(context.Background(), matched.Takes, decisions)
		fmt.Println(matched.Takes[0].Rule.Name, allowed, decisions[0].Remaining, err)
	}
	// Output:
	// auth/auth_type=login true 4 <nil>
	// auth/auth_type=login true 3 <nil>
	// auth/auth_type=login true 2 <nil>
	// auth/auth_type=login true 1 <nil>
	// auth/auth_type=login true 0 <nil>
	// auth/auth_type=login false 0 <nil>
}

func ExampleSet_ExplainDescriptors() {
	set := sluice.Must(rules.New(published))
	request := []rules.Descriptor{{Entries: []rules.Entry{{Key: "message_type", Value: "receipt"}}}}
	for _, line := range set.ExplainDescriptors("messaging", request)[0].Lines() {
		fmt.Println(line)
	}
	// Output:
	// entry 1, message_type=receipt: no rule
	//   no rule is exactly message_type=receipt
	// entry 1: no rule for message_type=receipt, and none for any value of "message_type", below messaging: not limited
}

func TestPublishedFiles(t *testing.T) {
	set := sluice.Must(rules.New(published))
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	store := sluice.Must(memstore.Open(memstore.Config{Now: func() time.Time { return now }}))
	limiter := sluice.Must(sluice.NewWithRules(store, nil))
	var m rules.DescriptorMatches
	allowed := func(domain, key, value string) bool {
		request := []rules.Descriptor{{Entries: []rules.Entry{{Key: key, Value: value}}, Cost: 1}}
		set.MatchDescriptors(domain, request, &m)
		ok, err := limiter.Decide(t.Context(), m.Takes, make([]sluice.Decision, len(m.Takes)))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	steps := []struct {
		after              time.Duration
		domain, key, value string
		want               int // allowed of 10
	}{
		{0, "messaging", "message_type", "marketing", 5},
		{0, "messaging", "message_type", "receipt", 10},
		{0, "auth", "auth_type", "login", 5},
		{0, "auth", "auth_type", "logout", 10},
		{0, "auth", "message_type", "marketing", 10},
		{59 * time.Second, "auth", "auth_type", "login", 0},
		{time.Second, "auth", "auth_type", "login", 5},
		{11 * time.Hour, "messaging", "message_type", "marketing", 0},
		{time.Hour, "messaging", "message_type", "marketing", 5},
	}
	for _, s := range steps {
		now = now.Add(s.after)
		got := 0
		for range 10 {
			if allowed(s.domain, s.key, s.value) {
				got++
			}
		}
		if got != s.want {
			t.Errorf("at %v %d of 10 %s=%s are allowed, want %d", now, got, s.key, s.value, s.want)
		}
	}
}
