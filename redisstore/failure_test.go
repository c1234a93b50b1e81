package redisstore_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

var hourly = sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(1_000_000)}))

// try takes one unit.
func try(store sluice.Store) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return store.Apply(ctx, []sluice.Take{{Rule: hourly, Key: "k", Cost: 1}}, make([]sluice.Decision, 1))
}

// refusal waits for an error that contains says, and checks its kind.
func refusal(t *testing.T, store sluice.Store, says string, config bool) {
	t.Helper()
	await(t, func() error {
		err := try(store)
		if err == nil || !strings.Contains(err.Error(), says) {
			return errors.Join(errors.New("no error that contains "+says), err)
		}
		if !errors.Is(err, sluice.ErrUnavailable) || errors.Is(err, redisstore.ErrConfig) != config {
			t.Errorf("%s: %v", says, err)
		}
		return nil
	})
}

// misconfigured opens a store with a wrong configuration. On a busy machine the server may be too slow for Open to
// detect the error; then a later call returns it.
func misconfigured(t *testing.T, c redisstore.Config, says string) error {
	t.Helper()
	store, err := redisstore.Open(c)
	if err == nil {
		defer store.Close()
		await(t, func() error {
			if err = try(store); err == nil || errors.Is(err, redisstore.ErrConfig) {
				return nil
			}
			return err
		})
	}
	if !errors.Is(err, redisstore.ErrConfig) || !strings.Contains(err.Error(), says) {
		t.Errorf("error %v, want a configuration error that contains %q", err, says)
	}
	return err
}

// TestRefusals checks that every error reply makes the store unavailable with a reason, and that calls succeed again
// when the cause has ended.
func TestRefusals(t *testing.T) {
	server := redistest.Start(t, "--enable-debug-command", "yes", "--enable-protected-configs", "yes", "--busy-reply-threshold", "1")
	store := open(t, redisstore.Config{URL: server.URL()})
	recovers := func() { t.Helper(); await(t, func() error { return try(store) }) }
	recovers()

	t.Run("READONLY", func(t *testing.T) {
		host, port, _ := net.SplitHostPort(redistest.Shared(t).Addr)
		do(t, server, "REPLICAOF", host, port)
		refusal(t, store, "READONLY", false)
		do(t, server, "REPLICAOF", "NO", "ONE")
		recovers()
	})
	t.Run("NOREPLICAS", func(t *testing.T) {
		do(t, server, "CONFIG", "SET", "min-replicas-to-write", "1")
		refusal(t, store, "NOREPLICAS", false)
		do(t, server, "CONFIG", "SET", "min-replicas-to-write", "0")
		recovers()
	})
	t.Run("OOM", func(t *testing.T) {
		do(t, server, "CONFIG", "SET", "maxmemory", "1")
		refusal(t, store, "raise maxmemory", false)
		do(t, server, "CONFIG", "SET", "maxmemory", "0")
		recovers()
	})
	t.Run("MISCONF", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "gone")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		do(t, server, "CONFIG", "SET", "dir", dir)
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		do(t, server, "CONFIG", "SET", "save", "3600 1000000")
		do(t, server, "BGSAVE")
		refusal(t, store, "MISCONF", false)
		do(t, server, "CONFIG", "SET", "save", "")
		recovers()
	})
	t.Run("BUSY", func(t *testing.T) {
		var busy sync.WaitGroup
		busy.Go(func() { _, _ = server.Do("EVAL", "while true do end", "0") })
		refusal(t, store, "SCRIPT KILL", false)
		do(t, server, "SCRIPT", "KILL")
		busy.Wait()
		recovers()
	})
	t.Run("LOADING", func(t *testing.T) {
		do(t, server, "CONFIG", "SET", "loading-process-events-interval-bytes", "1024")
		do(t, server, "DEBUG", "POPULATE", "2000")
		do(t, server, "CONFIG", "SET", "dir", t.TempDir())
		do(t, server, "CONFIG", "SET", "key-load-delay", "500")
		var loading sync.WaitGroup
		loading.Go(func() { _, _ = server.Do("DEBUG", "RELOAD") })
		refusal(t, store, "LOADING", false)
		loading.Wait()
		recovers()
	})
	t.Run("scripts flushed", func(t *testing.T) {
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 100 {
					if err := try(store); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for range 50 {
			do(t, server, "SCRIPT", "FLUSH")
			recovers()
		}
		callers.Wait()
	})
}

// TestTooManyClients checks that the server's error is reported, although it closes the connection right after it.
func TestTooManyClients(t *testing.T) {
	server := redistest.Start(t, "--maxclients", "8")
	var others []net.Conn
	for range 8 {
		conn, err := net.Dial("tcp", server.Addr)
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, conn)
	}
	store := open(t, redisstore.Config{URL: server.URL()})
	refusal(t, store, "raise maxclients", false)
	for _, conn := range others {
		conn.Close()
	}
	await(t, func() error { return try(store) })
}

// TestPasswordIsChanged checks that a password that is no longer valid is a configuration error, and that fail modes
// apply until the file has the new one.
func TestPasswordIsChanged(t *testing.T) {
	server := redistest.Start(t)
	user := []string{"ACL", "SETUSER", "limiter", "on", "resetpass", ">first", "~*", "+@all"}
	do(t, server, user...)
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := redisstore.Config{URL: "redis://limiter@" + server.Addr, PasswordFile: file}
	misconfigured(t, config, file)
	write("hunter2")
	if err := misconfigured(t, config, "WRONGPASS"); strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error contains the password: %v", err)
	}
	write("first")
	store := open(t, config)
	if err := try(store); err != nil {
		t.Fatal(err)
	}
	user[5] = ">second"
	do(t, server, user...)
	do(t, server, "CLIENT", "KILL", "USER", "limiter")
	refusal(t, store, "WRONGPASS", true)
	write("second")
	await(t, func() error { return try(store) })
	do(t, server, "ACL", "SETUSER", "limiter", "-evalsha")
	refusal(t, store, "NOPERM", true)
	do(t, server, "ACL", "SETUSER", "limiter", "+evalsha")
	await(t, func() error { return try(store) })
}

// TestLazyStart opens a store while its server is down. Calls fail immediately, and succeed once the server runs.
func TestLazyStart(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	for name, url := range map[string]string{"single": server.URL(), "several": server.URL() + "?addr=127.0.0.1:1", "sentinel": server.URL() + "?master_set=m"} {
		t.Run(name, func(t *testing.T) {
			store := open(t, redisstore.Config{URL: url})
			if err := try(store); !errors.Is(err, sluice.ErrUnavailable) || errors.Is(err, redisstore.ErrConfig) {
				t.Errorf("take: error %v", err)
			}
			bucket := sluice.Bucket{Rule: hourly, Key: "k"}
			ctx := context.Background()
			for _, err := range []error{store.Reset(ctx, bucket), store.Block(ctx, bucket, time.Hour), store.Ping(ctx)} {
				if !errors.Is(err, sluice.ErrUnavailable) || !strings.Contains(err.Error(), "refused") {
					t.Errorf("Ping: error %v", err)
				}
			}
			limiter := sluice.Must(sluice.NewWithRules(store, []*sluice.Rule{hourly}))
			if d, err := limiter.Allow(ctx, "k"); err != nil || d.Source != sluice.SourceFailLocal {
				t.Errorf("%+v, %v", d, err)
			}
			store.Close()
			if err := try(store); !errors.Is(err, sluice.ErrClosed) {
				t.Errorf("closed before it was connected: error %v", err)
			}
		})
	}
	store := open(t, redisstore.Config{URL: server.URL()})
	if err := try(store); err == nil {
		t.Fatal("Ping succeeded without a server")
	}
	var callers sync.WaitGroup
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		callers.Go(func() { await(t, func() error { return try(store) }) })
	}
	callers.Wait()
	if err := store.Ping(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestDemoted: a primary that becomes a replica keeps its connections. The store closes them and finds the new primary.
func TestDemoted(t *testing.T) {
	first, second := redistest.Start(t), redistest.Start(t)
	f := forward(t, first.Addr)
	store := open(t, redisstore.Config{URL: f.URL()})
	if err := try(store); err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(second.Addr)
	do(t, first, "REPLICAOF", host, port)
	f.to(second.Addr)
	await(t, func() error { return try(store) })
}

// TestSwitched: sentinels promote another server, and the first continues as a replica.
func TestSwitched(t *testing.T) {
	t.Parallel()
	sentinels := redistest.StartSentinels(t)
	store := open(t, redisstore.Config{URL: sentinels.URL()})
	if err := try(store); err != nil {
		t.Fatal(err)
	}
	first := sentinels.Primary()
	await(t, func() error { // the sentinels must have detected a replica
		_, err := sentinels.Sentinels[0].Do("SENTINEL", "FAILOVER", "limits")
		return err
	})
	await(t, func() error {
		if now := sentinels.Primary(); now == nil || now == first {
			return errors.New("the same primary")
		}
		return nil
	})
	await(t, func() error { return try(store) })
}

// TestFewDials checks that a server that closes every connection is not dialled for every call.
func TestFewDials(t *testing.T) {
	server := redistest.Start(t)
	f := forward(t, server.Addr)
	store := open(t, redisstore.Config{URL: f.URL()})
	if err := try(store); err != nil {
		t.Fatal(err)
	}
	f.to("127.0.0.1:1")
	server.Kill()
	const calls = 2000
	before := f.dials.Load()
	for range calls {
		if err := try(store); !errors.Is(err, sluice.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if dials := f.dials.Load() - before; dials > calls/20 {
		t.Errorf("%d dials for %d calls", dials, calls)
	}
}
