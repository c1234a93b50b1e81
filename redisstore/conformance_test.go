package redisstore_test

import (
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/storetest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

var opened atomic.Int64

// prefix returns a key prefix that no other test uses.
func prefix() string { return "t" + strconv.FormatInt(opened.Add(1), 10) + ":" }

// dial returns a client for the test.
func dial(t testing.TB, server *redistest.Server) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// TestConformance runs all of storetest on the test's clock.
func TestConformance(t *testing.T) {
	t.Parallel()
	client := dial(t, redistest.Shared(t))
	storetest.Run(t, storetest.Harness{Open: func(_ testing.TB, clock *storetest.Clock) sluice.Store {
		return sluice.Must(redisstore.Open(redisstore.Config{Client: client, KeyPrefix: prefix(), Now: clock.Now}))
	}})
}

// TestOnTheServersClock runs the part of storetest that works on the server's clock, as in production.
func TestOnTheServersClock(t *testing.T) {
	client := dial(t, redistest.Shared(t))
	storetest.Run(t, storetest.Harness{
		Open: func(testing.TB, *storetest.Clock) sluice.Store {
			return sluice.Must(redisstore.Open(redisstore.Config{Client: client, KeyPrefix: prefix()}))
		},
		Caps: storetest.Caps{RealClock: true},
	})
}

// TestValkey runs storetest on Valkey, the slow tests only with SLUICE_SOAK.
func TestValkey(t *testing.T) {
	client := dial(t, redistest.StartValkey(t))
	soak := os.Getenv("SLUICE_SOAK") != ""
	storetest.Run(t, storetest.Harness{
		Open: func(_ testing.TB, clock *storetest.Clock) sluice.Store {
			c := redisstore.Config{Client: client, KeyPrefix: prefix()}
			if soak {
				c.Now = clock.Now
			}
			return sluice.Must(redisstore.Open(c))
		},
		Caps: storetest.Caps{RealClock: !soak},
	})
}
