package memcachestore

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
)

// TestTTL checks TTLs at the bounds of Memcached's formats.
func TestTTL(t *testing.T) {
	const second, day, ttlMargin = int64(1_000_000), int64(24 * 3600), int64(ttlMargin / time.Second)
	wall := time.Date(2026, time.March, 2, 0, 0, 0, 0, time.UTC)
	late := time.Unix(math.MaxInt32-10, 0)
	for _, tt := range []struct {
		what string
		left int64 // in microseconds
		wall time.Time
		want int64
	}{
		{"nothing", 0, wall, 1 + ttlMargin},
		{"gone by", -5 * second, wall, 1 + ttlMargin},
		{"a microsecond", 1, wall, 1 + ttlMargin},
		{"a second", second, wall, 2 + ttlMargin},
		{"30 days with the margin", (month - 1 - ttlMargin) * second, wall, month},
		{"a second more", (month - ttlMargin) * second, wall, wall.Unix() + month + 1 + longMargin},
		{"a year", 365 * day * second, wall, wall.Unix() + 365*day + 1 + ttlMargin + longMargin},
		{"a hundred years", 36500 * day * second, wall, math.MaxInt32},
		{"a year, at the end of dates", 365 * day * second, late, month},
		{"an hour, at the end of dates", 3600 * second, late, 3601 + ttlMargin},
	} {
		if got := serverTTL(new(kit).ttl(someTime, someTime+tt.left), tt.wall); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.what, got, tt.want)
		}
	}
}

// TestPick checks that keys are distributed evenly, and that an added server takes only its own share.
func TestPick(t *testing.T) {
	s := &Store{}
	for i := range 5 {
		s.servers = append(s.servers, newServer(fmt.Sprint(i), nil))
	}
	fewer := &Store{servers: s.servers[:4]}
	share := map[*server]int{}
	const keys = 10_000
	for i := range keys {
		d := itemDigest(group.RuleID{}, fmt.Sprint(i))
		hash := binary.LittleEndian.Uint64(d[:])
		v := s.servers[s.pick(hash)]
		share[v]++
		if old := s.servers[fewer.pick(hash)]; v != old && v != s.servers[4] {
			t.Fatalf("key %d moved from %s to %s when server 4 was added", i, old.addr, v.addr)
		}
	}
	for v, n := range share {
		if n < keys/5*9/10 || n > keys/5*11/10 {
			t.Errorf("server %s has %d of %d keys", v.addr, n, keys)
		}
	}
}
