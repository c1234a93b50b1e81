package redisstore_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

// TestConfigFaults checks that configuration errors name their cause and contain no password.
func TestConfigFaults(t *testing.T) {
	client := dial(t, redistest.Shared(t))
	for _, c := range []struct {
		name   string
		config redisstore.Config
		says   string
	}{
		{"nothing", redisstore.Config{}, "redis://localhost:6379"},
		{"both", redisstore.Config{URL: "redis://localhost", Client: client}, "set only one of"},
		{"no URL", redisstore.Config{URL: "localhost:6379"}, "not of the form"},
		{"odd URL", redisstore.Config{URL: "redis://user:hunter2@local host"}, "not of the form"},
		{"another scheme", redisstore.Config{URL: "http://user:hunter2@localhost"}, "not of the form"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := redisstore.Open(c.config)
			if !errors.Is(err, redisstore.ErrConfig) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %v, want it to contain %q", err, c.says)
			}
		})
	}
}

// TestWaysToConnect connects with a password, to a database number, and through a Unix socket.
func TestWaysToConnect(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "redis.sock")
	server := redistest.Start(t, "--unixsocket", socket, "--requirepass", "hunter2")
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(10)}))
	for i, url := range []string{
		"redis://:hunter2@" + server.Addr,
		"redis://default:hunter2@" + server.Addr + "/0",
		"unix://default:hunter2@" + socket,
		"unix://default:hunter2@" + socket + "?db=0",
	} {
		store := open(t, redisstore.Config{URL: url})
		if d := apply(t, store, sluice.Take{Rule: rule, Key: "k", Cost: 1})[0]; d.Remaining != int64(9-i) {
			t.Errorf("Remaining is %d, want %d: not the same bucket", d.Remaining, 9-i)
		}
	}
	other := open(t, redisstore.Config{URL: "redis://:hunter2@" + server.Addr + "/1"})
	if d := apply(t, other, sluice.Take{Rule: rule, Key: "k", Cost: 1})[0]; d.Remaining != 9 {
		t.Errorf("another database: Remaining is %d", d.Remaining)
	}
	if err := misconfigured(t, redisstore.Config{URL: "redis://:wrong@" + server.Addr}, "WRONGPASS"); strings.Contains(err.Error(), "wrong@") {
		t.Errorf("the error contains the URL: %v", err)
	}
	misconfigured(t, redisstore.Config{URL: "redis://" + server.Addr}, "NOAUTH")
	misconfigured(t, redisstore.Config{URL: "redis://:hunter2@" + server.Addr + "/7"}, "database")
}

// TestClosed checks that a closed store returns ErrClosed, and that Close does not close the caller's client.
func TestClosed(t *testing.T) {
	server := redistest.Shared(t)
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(10)}))
	takes := []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}
	store := open(t, redisstore.Config{URL: server.URL(), KeyPrefix: prefix()})
	store.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := store.Apply(ctx, takes, make([]sluice.Decision, 1)); !errors.Is(err, sluice.ErrClosed) {
		t.Errorf("closed store: error %v", err)
	}
	shared := open(t, redisstore.Config{Client: dial(t, server), KeyPrefix: prefix()})
	shared.Close()
	if err := shared.Apply(ctx, takes, make([]sluice.Decision, 1)); err != nil {
		t.Errorf("the caller's client was closed: %v", err)
	}
}
