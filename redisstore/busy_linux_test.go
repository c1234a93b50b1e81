package redisstore_test

import (
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/busytest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

var whenBusy = busytest.Harness{
	Server: func(t testing.TB) string { return redistest.Start(t).Addr },
	Open: func(t testing.TB, addr string) sluice.Store {
		store := open(t, redisstore.Config{URL: "redis://" + addr})
		if err := store.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		return store
	},
}

func TestBusyProcessors(t *testing.T) { busytest.Run(t, whenBusy) }

func TestHeldUp(t *testing.T) { busytest.RunHeld(t, whenBusy) }
