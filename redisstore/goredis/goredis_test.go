package goredis_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sluiceproject/sluice/redisstore/goredis"
)

// The tests that need servers are in cmd/internal/goredistest.

// TestNewRefuses checks that New rejects clients that would break a guarantee.
func TestNewRefuses(t *testing.T) {
	for says, client := range map[string]redis.UniversalClient{
		"is nil":                nil,
		"ContextTimeoutEnabled": redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}),
		"set ContextTimeout":    redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}),
		"Ring":                  redis.NewRing(&redis.RingOptions{}),
	} {
		if _, err := goredis.New(client); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("New: error %v, want it to contain %q", err, says)
		}
	}
}
