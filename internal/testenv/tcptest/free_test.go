package tcptest

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// reserveAll reserves addresses from several goroutines, and fails if one is given out twice.
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
					t.Errorf("%s is given out twice", address)
				}
				all[address] = true
				mu.Unlock()
			}
		})
	}
	work.Wait()
	return all
}

// No two tests are given the same address, be they of one process or of two, and a server can listen on each.
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
				t.Errorf("%s is another process's as well", address)
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

// A port that was reserved is free, and one that was listened on can be listened on again, also while processes are started,
// which have copies of descriptors for a moment.
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
