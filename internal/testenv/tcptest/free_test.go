package tcptest

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// reserveAll reserves addresses from several goroutines, and fails if an address is returned twice.
func reserveAll(t *testing.T, n int) (all map[string]bool) {
	t.Helper()
	all = map[string]bool{}
	var mu sync.Mutex // guards all
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for range n / 4 {
				address := FreeAddress(t)
				mu.Lock()
				if all[address] {
					t.Errorf("%s was returned twice", address)
				}
				all[address] = true
				mu.Unlock()
			}
		})
	}
	work.Wait()
	return all
}

// TestFreeAddress checks that no two tests get the same address, in one process or in two, and that a server can listen
// on each.
func TestFreeAddress(t *testing.T) {
	const n = 400
	mine := reserveAll(t, n)
	if os.Getenv("TCPTEST_OTHER") != "" {
		for address := range mine {
			t.Logf("address %s", address)
		}
		return
	}
	other := exec.Command(os.Args[0], "-test.run=^TestFreeAddress$", "-test.v")
	other.Env = append(os.Environ(), "TCPTEST_OTHER=1")
	out, err := other.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	theirs := 0
	for line := range strings.Lines(string(out)) {
		if _, address, found := strings.Cut(strings.TrimSpace(line), "address "); found {
			theirs++
			if mine[address] {
				t.Errorf("%s was also returned to another process", address)
			}
		}
	}
	if theirs != n || len(mine) != n {
		t.Fatalf("%d and %d addresses, want %d each", len(mine), theirs, n)
	}
	for address := range mine {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}

// TestListenAmidProcesses checks that a reserved port is free, and that a port can be listened on again, also while
// child processes are started, which have copies of file descriptors for a moment.
func TestListenAmidProcesses(t *testing.T) {
	stop := make(chan struct{})
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	for range 100 {
		l, err := net.Listen("tcp", FreeAddress(t))
		if err != nil {
			t.Error(err)
			break
		}
		_ = l.Close()
		if l, err = Listen(l.Addr().String()); err != nil {
			t.Error("again: ", err)
			break
		}
		_ = l.Close()
	}
	close(stop)
	work.Wait()
}
