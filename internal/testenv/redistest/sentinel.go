package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// startSentinel starts a sentinel that monitors a primary. Sentinels store their state in their configuration file.
func startSentinel(t testing.TB, host, port string) *Server {
	t.Helper()
	requireRedis(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	// Sentinels promote no replica that was disconnected from its primary for ten times as long as this, which happens
	// for seconds in tests on busy machines.
	text := fmt.Sprintf("sentinel monitor limits %s %s 2\nsentinel down-after-milliseconds limits 2000\n"+
		"sentinel failover-timeout limits 3000\n", host, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: tcptest.FreeAddress(t), dir: dir, program: redisServer, sentinel: file}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}
