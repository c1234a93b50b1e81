package memcachestore_test

import (
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/storetest"
)

func TestTwoServersAtOnce(t *testing.T) {
	config := memcachestore.Config{Addrs: []string{memcachetest.Start(t).Addr}}
	storetest.TwoAtOnce(t, [2]sluice.Store{openStore(t, config), openStore(t, config)})
}
