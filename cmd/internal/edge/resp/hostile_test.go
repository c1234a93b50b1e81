package resp_test

import (
	"crypto/rand"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/edge/resp"
	"github.com/sluiceproject/sluice/memstore"
)

// Invalid, partial and interrupted commands do not affect other clients, and need little memory.
func TestHostile(t *testing.T) {
	_, address := start(t, memstore.New(), resp.Config{})
	honest := newAsker(t, address)
	noise := make([]byte, 20_000)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	texts := []string{
		string(noise), strings.Repeat("\x00", 20_000), strings.Repeat("*", 20_000), strings.Repeat("\n", 20_000),
		strings.Repeat("*16\r\n", 5000), "*2147483647\r\n", "*-2147483648\r\n", "*16\r\n$2147483647\r\n", "*1\r\n$8192\r\n",
		strings.Repeat("*1\r\n", 5000), "*16\r\n" + strings.Repeat("$0\r\n\r\n", 15), "*5\r\n$11\r\nCL.THROTTLE\r\n$1024\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		strings.Repeat("PING ", 5000), strings.Repeat("'", 9000) + "\n", strings.Repeat(array("ECHO", strings.Repeat("e", 8000)), 100),
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var open []net.Conn
	for range soak(100) {
		for _, text := range texts {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
			go func() { _, _ = io.WriteString(c, text) }()
		}
	}
	if got := honest.throttle("k", 1, 1, 60); got != (five{0, 2, 1, -1, 60}) {
		t.Errorf("a well-behaved client gets %v", got)
	}
	if got := newAsker(t, address).throttle("k", 1, 1, 60); got != (five{0, 2, 0, -1, 120}) {
		t.Errorf("a new client gets %v", got)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)
	if most := int64(len(open)) * 64 << 10; grown > most { // for both ends
		t.Errorf("%d connections take %d KiB each", len(open), grown/int64(len(open))>>10)
	}
	for _, c := range open {
		c.Close()
	}
	if got := honest.throttle("k", 1, 1, 60); got != (five{1, 2, 0, 60, 120}) {
		t.Errorf("a well-behaved client gets %v", got)
	}
}

// An idle connection needs little memory.
func TestIdleMemory(t *testing.T) {
	_, address := start(t, memstore.New(), resp.Config{})
	const connections = 200
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all []*asker
	for range connections {
		a := newAsker(t, address)
		a.throttle("k", 1000, 1, 60)
		all = append(all, a)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)
	t.Logf("%d KiB each, with its client's 4 KiB buffer", grown/connections>>10)
	if grown/connections > 24<<10 {
		t.Errorf("a connection takes %d KiB", grown/connections>>10)
	}
	runtime.KeepAlive(all)
}
