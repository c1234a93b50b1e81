package goredistest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/faultproxy"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore/goredis"
)

// TestLyingServer checks that with Dialer a malformed reply, on connecting or later, fails calls with an error that
// names the server, and that the store recovers when the replies are valid again.
func TestLyingServer(t *testing.T) {
	for lie, reason := range map[string]string{
		"$-9\r\n": "length -9", "*1000000000\r\n": "1000000000 elements", "$9999999999999\r\n": "9999999999999 bytes",
		strings.Repeat("*1\r\n", 100_000): "nested more than 16 deep", "+" + strings.Repeat("x", 1<<20): "line of more than",
	} {
		t.Run(reason, func(t *testing.T) {
			proxy := faultproxy.Start(t, redistest.Shared(t).Addr)
			options := &redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true, DisableIdentity: true}
			options.Dialer = goredis.Dialer(redis.NewDialer(options))
			client := redis.NewClient(options)
			t.Cleanup(func() { _ = client.Close() })
			store := open(t, client, nil)
			out := make([]sluice.Decision, len(takes))
			apply := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				return store.Apply(ctx, takes, out)
			}
			lies := func() {
				t.Helper()
				proxy.Set(faultproxy.Fault{Change: func(*faultproxy.Conn, []byte) []byte { return []byte(lie) }})
				err := apply()
				if !errors.Is(err, sluice.ErrUnavailable) || !strings.Contains(err.Error(), "Redis "+proxy.Addr+": reply rejected") || !strings.Contains(err.Error(), reason) {
					t.Errorf("%v", err)
				}
				proxy.Heal()
				if err := apply(); err != nil || !out[0].Allowed {
					t.Errorf("%+v, %v", out[0], err)
				}
			}
			lies() // on connecting
			lies()
		})
	}
}
