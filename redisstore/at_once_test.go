package redisstore_test

import (
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/storetest"
)

func TestTwoServersAtOnce(t *testing.T) {
	config := redisstore.Config{URL: redistest.Start(t).URL()}
	storetest.TwoAtOnce(t, [2]sluice.Store{open(t, config), open(t, config)})
}
