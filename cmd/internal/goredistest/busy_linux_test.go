package goredistest

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/busytest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/redisstore/goredis"
)

func TestHeldUp(t *testing.T) {
	busytest.RunHeld(t, busytest.Harness{
		Server: func(t testing.TB) string { return redistest.Start(t).Addr },
		Open: func(t testing.TB, addr string) sluice.Store {
			options := &redis.Options{Addr: addr, ContextTimeoutEnabled: true}
			options.Dialer = goredis.Dialer(redis.NewDialer(options))
			client := redis.NewClient(options)
			t.Cleanup(func() { client.Close() })
			store := sluice.Must(redisstore.Open(redisstore.Config{Commander: sluice.Must(goredis.New(client))}))
			t.Cleanup(store.Close)
			if err := store.Join(t.Context()); err != nil {
				t.Fatal(err)
			}
			return store
		},
	})
}
