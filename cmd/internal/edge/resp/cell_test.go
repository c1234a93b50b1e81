package resp_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/edge/resp"
	"github.com/sluiceproject/sluice/memstore"
)

// soak returns n, or n/10 unless SLUICE_SOAK is set.
func soak(n int) int {
	if os.Getenv("SLUICE_SOAK") != "" {
		return n
	}
	return n / 10
}

// clock is a virtual clock, in microseconds.
type clock struct{ micros atomic.Int64 }

func (c *clock) now() time.Time { return time.UnixMicro(c.micros.Load()) }

// asker sends one command after the other.
type asker struct {
	conn net.Conn
	read *bufio.Reader
	t    testing.TB
}

func newAsker(t testing.TB, address string) *asker {
	c := dial(t, address)
	return &asker{c, bufio.NewReader(c), t}
}

func (a *asker) throttle(key string, numbers ...int64) five {
	a.t.Helper()
	args := []string{"CL.THROTTLE", key}
	for _, n := range numbers {
		args = append(args, strconv.FormatInt(n, 10))
	}
	if _, err := io.WriteString(a.conn, array(args...)); err != nil {
		a.t.Fatal(err)
	}
	f, err := readFive(a.read)
	if err != nil {
		a.t.Fatal(err)
	}
	return f
}

// virtual returns a client of a server whose store has a virtual clock.
func virtual(t *testing.T) (*asker, *clock) {
	t.Helper()
	var c clock
	c.micros.Store(1_700_000_000_000_000)
	store, err := memstore.Open(memstore.Config{Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	_, address := start(t, store, resp.Config{})
	return newAsker(t, address), &c
}

// The example of redis-cell's README: a burst of 15 + 1, then 30 per 60 s.
func TestReadmeOfRedisCell(t *testing.T) {
	a, now := virtual(t)
	for i := range int64(16) {
		if got, want := a.throttle("user123", 15, 30, 60, 1), (five{0, 16, 15 - i, -1, 2 * (i + 1)}); got != want {
			t.Errorf("call %d: got %v, want %v", i+1, got, want)
		}
	}
	for _, step := range []struct {
		after    time.Duration
		quantity int64
		want     five
	}{
		{0, 1, five{1, 16, 0, 2, 32}},
		{0, 0, five{0, 16, 0, -1, 32}},
		{500 * time.Microsecond, 1, five{1, 16, 0, 2, 32}}, // 1.9995 s and 31.9995 s
		{999500 * time.Microsecond, 1, five{1, 16, 0, 1, 31}},
		{time.Millisecond, 1, five{1, 16, 0, 1, 31}},
		{998 * time.Millisecond, 1, five{1, 16, 0, 1, 31}},
		{500 * time.Microsecond, 1, five{1, 16, 0, 0, 30}}, // fractions of a millisecond are truncated
		{500 * time.Microsecond, 1, five{0, 16, 0, -1, 32}},
		{20 * time.Second, 5, five{0, 16, 5, -1, 22}},
		{0, 6, five{1, 16, 5, 2, 22}},
		{0, 17, five{1, 16, 5, -1, 22}}, // exceeds the limit
		{time.Hour, 0, five{0, 16, 16, -1, 0}},
		{0, 17, five{1, 16, 16, -1, 0}},
	} {
		now.micros.Add(step.after.Microseconds())
		if got := a.throttle("user123", 15, 30, 60, step.quantity); got != step.want {
			t.Errorf("%v later, %d: got %v, want %v", step.after, step.quantity, got, step.want)
		}
	}
}

// cell is the algorithm of redis-cell in nanoseconds, as in its documentation.
type cell map[string]int64 // by key: time at which it is fully reset

func (c cell) throttle(now int64, key string, burst, count, period, quantity int64) five {
	unit := period * 1e9 / count
	room, more := unit*(burst+1), unit*quantity
	at := max(now, c[key])
	answer := five{0, burst + 1, 0, -1, 0}
	late := at + more - room - now
	if late > 0 {
		answer[0] = 1
		if more <= room {
			answer[3] = up(late)
		}
	} else {
		at += more
		c[key] = at
	}
	answer[2] = max(0, room-(at-now)) / unit
	answer[4] = up(at - now)
	return answer
}

// up rounds up to seconds, ignoring fractions of a millisecond.
func up(ns int64) int64 {
	s := ns / 1e9
	if ns%1e9/1e6 > 0 {
		s++
	}
	return s
}

// Replies to any history are those of redis-cell, even if the limit of a key changes. Rates are those with a whole number of
// microseconds per unit, because redis-cell rounds others.
func TestAsRedisCell(t *testing.T) {
	a, now := virtual(t)
	reference := cell{}
	r := rand.New(rand.NewPCG(1, 2))
	rates := [][2]int64{{1, 1}, {30, 60}, {1, 2}, {100, 1}, {5, 3600}, {1, 86400}, {1000000, 1}, {48, 3600}}
	bursts := []int64{0, 1, 4, 15, 1000}
	limited, never := 0, 0
	for range soak(50_000) {
		key := fmt.Sprint("k", r.IntN(5))
		rate := rates[r.IntN(len(rates))]
		burst := bursts[r.IntN(len(bursts))]
		quantity := []int64{0, 1, 1, 1, 2, burst, burst + 1, burst + 2}[r.IntN(8)]
		if unit := rate[1] * 1e6 / rate[0]; r.IntN(3) > 0 {
			now.micros.Add(r.Int64N(2*unit) / []int64{1, 10, 1000}[r.IntN(3)])
		}
		got := a.throttle(key, burst, rate[0], rate[1], quantity)
		want := reference.throttle(now.micros.Load()*1000, key, burst, rate[0], rate[1], quantity)
		if got != want {
			t.Fatalf("%s burst %d, %d per %d s, %d: got %v, want %v", key, burst, rate[0], rate[1], quantity, got, want)
		}
		if got[0] == 1 {
			limited++
			if got[3] < 0 {
				never++
			}
		}
	}
	if limited == 0 || never == 0 || never == limited {
		t.Errorf("only %d denials, %d of them above the limit: the test is too weak", limited, never)
	}
}
