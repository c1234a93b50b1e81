package memcachestore_test

import (
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/busytest"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
)

var whenBusy = busytest.Harness{
	Server: func(t testing.TB) string { return memcachetest.Start(t).Addr },
	Open: func(t testing.TB, addr string) sluice.Store {
		store := openStore(t, memcachestore.Config{Addrs: []string{addr}})
		if err := store.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		return store
	},
}

func TestBusyProcessors(t *testing.T) { busytest.Run(t, whenBusy) }

func TestHeldUp(t *testing.T) { busytest.RunHeld(t, whenBusy) }
