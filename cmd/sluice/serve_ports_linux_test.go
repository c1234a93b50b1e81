package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listening returns the addresses of the listening TCP sockets of a process.
func listening(t *testing.T, pid int) (all []netip.AddrPort) {
	t.Helper()
	own := map[string]bool{}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil && strings.HasPrefix(name, "socket:[") {
			own[strings.Trim(name, "socket:[]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			const listens = "0A"
			if f := strings.Fields(line); len(f) > 9 && f[3] == listens && own[f[9]] {
				all = append(all, socketAddr(t, f[1]))
			}
		}
	}
	return all
}

// socketAddr parses an address in the format of /proc/net/tcp: 32-bit words in little-endian order, and a port.
func socketAddr(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(host)
	if err != nil {
		t.Fatal(err)
	}
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	addr, ok := netip.AddrFromSlice(b)
	var n uint16
	if _, err := fmt.Sscanf(port, "%X", &n); err != nil || !ok {
		t.Fatal(text, err)
	}
	return netip.AddrPortFrom(addr, n)
}

// firstBytes returns the first bytes of a listener's response to an HTTP/1 request.
func firstBytes(t *testing.T, address string) string {
	t.Helper()
	c := raw(t, address)
	if _, err := io.WriteString(c, "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 6)
	n, _ := io.ReadFull(c, b)
	return string(b[:n])
}

// By default no listener is reachable from other hosts. With listeners on all addresses, the reachable ones do not serve the admin
// API.
func TestServePortScan(t *testing.T) {
	p := startServe(t, "")
	sockets := listening(t, p.cmd.Process.Pid)
	if len(sockets) != 3 {
		t.Errorf("listening on %v", sockets)
	}
	for _, s := range sockets {
		if !s.Addr().Unmap().IsLoopback() {
			t.Errorf("a listener on %v is reachable from other hosts", s)
		}
	}
	p = startServe(t, fmt.Sprintf("listeners: {grpc: {address: ':0'}, http: {address: ':0'}}\nqueue: {directory: %q}", t.TempDir()))
	reached := 0
	for _, s := range listening(t, p.cmd.Process.Pid) {
		if s.Addr().Unmap().IsLoopback() {
			if s.String() != p.admin {
				t.Errorf("listening on %v", s)
			}
			continue
		}
		reached++
		if _, port, _ := net.SplitHostPort(p.grpc); port == fmt.Sprint(s.Port()) {
			if got := firstBytes(t, "127.0.0.1:"+port); strings.HasPrefix(got, "HTTP/1") {
				t.Errorf("the gRPC listener responds to HTTP/1: %q", got)
			}
			continue
		}
		base := fmt.Sprintf("http://127.0.0.1:%d", s.Port())
		for _, call := range []struct{ method, path, body string }{
			{"GET", "/v1/status", ""},
			{"GET", "/v1/rules", ""},
			{"GET", "/v1/keys", ""},
			{"GET", "/v1/top", ""},
			{"GET", "/v1/watch?interval=x", ""},
			{"POST", "/v1/explain", `{"request":{"path":"/"}}`},
			{"POST", "/v1/peek", `{"rule":"demo/remote_address","key":{"remote_address":"a"}}`},
			{"POST", "/v1/reset", `{"rule":"demo/remote_address","key":{"remote_address":"a"}}`},
			{"POST", "/v1/block", `{"rule":"demo/remote_address","key":{"remote_address":"a"},"duration":"1m"}`},
			{"POST", "/v1/suspend", `{"rules":["demo/remote_address"]}`},
			{"POST", "/v1/resume", `{"rules":["demo/remote_address"]}`},
			{"GET", "/v1/queue", ""},
			{"POST", "/v1/queue/cancel", `{"id":"x"}`},
			{"POST", "/v1/reload", `{}`},
			{"PUT", "/v1/log-level", `{"level":"debug"}`},
			{"GET", "/debug/pprof/", ""},
			{"GET", "/debug/pprof/cmdline", ""},
			{"GET", "/debug/vars", ""},
		} {
			if got := operate(t, http.DefaultClient, base, call.method, call.path, call.body); got.status != 404 {
				t.Errorf("%v: %s %s: status %d %s", s, call.method, call.path, got.status, got.body)
			}
		}
	}
	if reached != 2 {
		t.Errorf("%d listeners are reachable", reached)
	}
	if got := p.operate(t, "GET", "/v1/status", ""); !strings.Contains(got.body, `"suspended":[]`) || !strings.Contains(got.body, `"log_level":"info"`) {
		t.Errorf("the status is %s", got.body)
	}
}
