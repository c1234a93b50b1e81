package envoyratelimit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// A store outage is logged with one line at its beginning and one at its end, at the default level, in every fail mode, for any
// number of requests, and whether the server is stopped or hangs.
func TestStoreOutageIsLogged(t *testing.T) {
	type server struct {
		environ         []string
		kill, hang      func() error
		restart, resume func() error
	}
	redis := func(environ ...string) func(*testing.T) server {
		return func(t *testing.T) server {
			s := redistest.Start(t)
			kill := func() error { s.Kill(); return nil }
			return server{append(environ, "REDIS_URL="+s.Addr), kill, s.Stop, s.Restart, s.Continue}
		}
	}
	memcached := func(environ ...string) func(*testing.T) server {
		return func(t *testing.T) server {
			s := memcachetest.Start(t)
			do := func(f func()) func() error { return func() error { f(); return nil } }
			environ := append(slices.Clone(environ), "BACKEND_TYPE=memcache", "MEMCACHE_HOST_PORT="+s.Addr)
			return server{environ, do(s.Kill), do(s.Pause), do(s.Restart), do(s.Resume)}
		}
	}
	_, environ := ruleDir(t, "  - {key: a, limit: 1000}\n")
	for name, start := range map[string]func(*testing.T) server{
		"error": redis(), "open": redis("SLUICE_ON_FAILURE=open"), "closed": redis("SLUICE_ON_FAILURE=closed"), "local": redis("SLUICE_ON_FAILURE=local"),
		"envoy's keys": redis("SLUICE_KEY_FORMAT=envoy"), "memcached": memcached(), "envoy's keys in memcached": memcached("SLUICE_KEY_FORMAT=envoy"),
	} {
		for _, hangs := range []bool{false, true} {
			for _, requests := range []int{0, 1, 100} {
				if hangs && requests == 100 || name != "error" && (requests == 0 || hangs != (requests == 1)) {
					continue
				}
				t.Run(fmt.Sprintf("%s, hangs %t, %d requests", name, hangs, requests), func(t *testing.T) {
					t.Parallel()
					s := start(t)
					p := launch(t, append(slices.Clone(environ), s.environ...)...)
					await(t, func() bool { return p.health() == "SERVING" })
					p.ask("a=1")
					end, begin := s.kill, s.restart
					if hangs {
						end, begin = s.hang, s.resume
					}
					if err := end(); err != nil {
						t.Fatal(err)
					}
					for range requests {
						p.ask("a=1")
					}
					p.says("store unavailable")
					if err := begin(); err != nil {
						t.Fatal(err)
					}
					p.says("store available again")
					for range requests {
						p.ask("a=1")
					}
					var got []string
					for _, m := range regexp.MustCompile(`level=(\w+) msg="(store (?:un)?available.*?)" address=\S+:`).FindAllStringSubmatch(p.logged(), -1) {
						got = append(got, m[1]+" "+m[2])
					}
					if want := []string{"error store unavailable", "warning store available again"}; !slices.Equal(got, want) {
						t.Errorf("logged %q, want %q", got, want)
					}
					if n := strings.Count(p.logged(), "level=error"); n != 1 {
						t.Errorf("%d error lines", n)
					}
				})
			}
		}
	}
}

// Each server is logged separately. One failed ping is not logged unless a request failed too. Failing requests while all
// servers reply are logged once.
func TestStoreWatch(t *testing.T) {
	refused := errors.New("OOM command not allowed")
	slow := fmt.Errorf("redis: %w", context.DeadlineExceeded)
	const interval = checkInterval
	for _, tt := range []struct {
		name string
		do   func(w *storeWatch, down []atomic.Bool)
		want []string
	}{
		{"a server and then another", func(_ *storeWatch, down []atomic.Bool) {
			down[0].Store(true)
			<-time.After(5 * interval)
			down[1].Store(true)
			<-time.After(5 * interval)
			down[0].Store(false)
			<-time.After(2 * interval)
			down[1].Store(false)
		}, []string{"ERROR store unavailable s0", "ERROR store unavailable s1", "WARN store available again s0", "WARN store available again s1"}},
		{"a lost ping", func(_ *storeWatch, down []atomic.Bool) {
			down[0].Store(true)
			<-time.After(interval)
			down[0].Store(false)
		}, nil},
		{"a lost ping and a failed request", func(w *storeWatch, down []atomic.Bool) {
			down[0].Store(true)
			w.requestFailed(slow)
			<-time.After(interval / 2)
			down[0].Store(false)
		}, []string{"ERROR store unavailable s0", "WARN store available again s0"}},
		{"requests fail", func(w *storeWatch, _ []atomic.Bool) {
			for range 100 {
				w.requestFailed(refused)
				<-time.After(interval / 10)
			}
			<-time.After(10 * interval) // without requests the state is unknown
			for range 50 {
				w.requestCounted()
				<-time.After(interval / 10)
			}
		}, []string{"ERROR store calls failing OOM command not allowed", "WARN store calls recovered"}},
		{"some requests fail", func(w *storeWatch, _ []atomic.Bool) {
			for range 100 {
				w.requestFailed(refused)
				w.requestCounted()
				<-time.After(interval / 10)
			}
		}, []string{"ERROR store calls failing OOM command not allowed"}},
		{"one request is slow", func(w *storeWatch, _ []atomic.Bool) {
			for range 5 {
				w.requestFailed(slow)
				<-time.After(interval)
				w.requestCounted()
				<-time.After(interval)
			}
		}, nil},
		{"all requests are slow", func(w *storeWatch, _ []atomic.Bool) {
			for range 100 {
				w.requestFailed(slow)
				<-time.After(interval / 10)
			}
		}, []string{"ERROR store calls failing redis: context deadline exceeded"}},
		{"before the store is there", func(w *storeWatch, _ []atomic.Bool) { w.requestFailed(errEarly) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				w := newStoreWatch(slog.New(slog.NewTextHandler(&log, nil)), func(bool) {})
				down := make([]atomic.Bool, 2)
				var servers []storeServer
				for i := range down {
					servers = append(servers, storeServer{fmt.Sprint("s", i), func(context.Context) error {
						if down[i].Load() {
							return errors.New("refused")
						}
						return nil
					}})
				}
				ctx, cancel := context.WithCancel(t.Context())
				go w.run(ctx, servers)
				<-time.After(10*interval + interval/3)
				tt.do(w, down)
				<-time.After(10 * interval)
				cancel()
				synctest.Wait()
				var got []string
				for _, m := range regexp.MustCompile(`level=(\w+) msg="([^"]*)"(?: address=(\w+))?(?: error="?([^"\n]*))?`).FindAllStringSubmatch(log.String(), -1) {
					line := strings.Join(m[1:4], " ")
					if m[3] == "" {
						line += m[4]
					}
					got = append(got, strings.TrimSpace(line))
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("logged\n%s\nwant %q", &log, tt.want)
				}
			})
		})
	}
}
