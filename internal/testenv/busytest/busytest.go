//go:build linux

// Package busytest runs two processes that share a limit on a real server while all CPUs are busy, and checks the
// limiter's guarantees under these conditions: a delay of this process must not count as a failure of the server.
//
// Requests and replies pass through a proxy. A request is sent when the kernel has received it, which timestamps it; a
// reply has arrived when the proxy has written it. Only these timestamps show which side was late, because any other
// code may have waited for a CPU before it read a clock.
package busytest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
)

// Harness describes the store under test.
type Harness struct {
	Server func(t testing.TB) (addr string)
	Open   func(t testing.TB, addr string) sluice.Store // opens and connects a store
}

const (
	processes = 2
	limit     = 10
	asks      = 12 // takes of each process per key
	timeout   = 10 * time.Millisecond
	patience  = 10 * time.Minute // maximum lifetime of a process

	roleName = "SLUICE_TEST_BUSY"
	addrName = "SLUICE_TEST_ADDR"
)

// Run is the complete test of a store. The processes are the test binary, whose role is in the environment.
func Run(t *testing.T, h Harness) {
	switch os.Getenv(roleName) {
	case "spin":
		spin()
	case "ask":
		ask(t, h.Open(t, os.Getenv(addrName)))
	default:
		share(t, h)
	}
}

// spin keeps a CPU busy until the parent process exits or closes its end of the pipe.
func spin() {
	end := time.Now().Add(patience)
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(gone)
	}()
	for time.Now().Before(end) {
		select {
		case <-gone:
			return
		default:
		}
	}
}

// ask takes from each key that is named on the standard input, and prints how many takes were admitted.
func ask(t *testing.T, store sluice.Store) {
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.Limit{
		Count: limit, Window: 24 * time.Hour, Algorithm: sluice.FixedWindow, Align: sluice.AlignFirstRequest,
	}}))
	fmt.Println("ready")
	for keys := bufio.NewScanner(os.Stdin); keys.Scan(); {
		l := sluice.Must(sluice.NewWithRules(store, []*sluice.Rule{rule},
			sluice.WithStoreTimeout(timeout), sluice.WithInstances(func() int { return processes })))
		admitted, degraded := int64(0), 0
		for range asks {
			d, err := l.Allow(context.Background(), keys.Text())
			if err != nil {
				t.Fatal(err)
			}
			admitted += d.Granted
			if d.Source.Degraded() {
				degraded++
			}
		}
		if err := l.Close(context.Background()); err != nil { // so that nothing is sent later
			t.Error(err)
		}
		fmt.Println(admitted, degraded)
	}
}

// process is a process that this test started.
type process struct {
	pid int
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, role, addr string) process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout="+patience.String())
	cmd.Env = append(os.Environ(), roleName+"="+role, addrName+"="+addr, "GOMAXPROCS="+fmt.Sprint(runtime.NumCPU()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return process{cmd.Process.Pid, in, bufio.NewReader(out)}
}

// asker starts a process that takes from keys, and waits until it is connected.
func asker(t *testing.T, addr string) process {
	t.Helper()
	p := start(t, "ask", addr)
	if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q %v", line, err)
	}
	return p
}

// ask makes the process take from a key.
func (p process) ask(t *testing.T, key string) {
	if _, err := fmt.Fprintln(p.in, key); err != nil {
		t.Fatal(err)
	}
}

// answer returns how many takes the process has admitted, and how many decisions were degraded.
func (p process) answer(t *testing.T) (admitted, degraded int) {
	if _, err := fmt.Fscanln(p.out, &admitted, &degraded); err != nil {
		t.Fatal(err)
	}
	return admitted, degraded
}

// RunHeld stops a process whenever it has sent a request, until its timeout has passed and the reply has arrived. The
// process must use every reply.
func RunHeld(t *testing.T, h Harness) {
	if os.Getenv(roleName) != "" {
		Run(t, h)
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	proxy := startProxy(t, h.Server(t))
	p := asker(t, proxy.addr)
	for try := range 20 {
		proxy.begin()
		proxy.holdUp(p.pid)
		p.ask(t, fmt.Sprint("try ", try))
		admitted, degraded := p.answer(t)
		proxy.holdUp(0)
		if proxy.end().replies > 0 {
			continue // a reply was late
		}
		if admitted != limit || degraded != 0 {
			t.Errorf("admitted %d of %d, and %d decisions were degraded though the replies had arrived", admitted, limit, degraded)
		}
		return
	}
	t.Error("every attempt had a late reply")
}

// share runs pairs of processes that share one key after the other.
func share(t *testing.T, h Harness) {
	runtime.LockOSThread() // the kernel kills the processes when the thread that started them ends
	defer runtime.UnlockOSThread()
	pairs, rounds := 2, 4
	soak := os.Getenv("SLUICE_SOAK") != ""
	if soak {
		pairs, rounds = 20, 10
	}
	proxy := startProxy(t, h.Server(t))
	for range runtime.NumCPU() {
		start(t, "spin", "")
	}
	var late, least, most, total, blamed int
	least = limit
	for pair := range pairs {
		t.Run("", func(t *testing.T) {
			var both [processes]process
			for i := range both {
				both[i] = asker(t, proxy.addr)
			}
			for round := range rounds {
				key := fmt.Sprintf("pair %d round %d", pair, round)
				proxy.begin()
				for _, p := range both {
					p.ask(t, key)
				}
				admitted, degraded := 0, 0
				for _, p := range both {
					n, local := p.answer(t)
					admitted, degraded = admitted+n, degraded+local
				}
				overdue := proxy.end()
				total++
				what := fmt.Sprintf("%s: admitted %d of %d, %d decisions degraded; %d replies were late, by up to %v",
					key, admitted, limit, degraded, overdue.replies, overdue.most-timeout)
				switch {
				case overdue.replies == 0:
					if admitted != limit {
						t.Error(what)
					}
					blamed += degraded
				default:
					late++
					least, most = min(least, admitted), max(most, admitted)
					// A degraded decision may have been charged at the server as well, or not at all.
					if admitted > limit+max(processes-1, degraded) || admitted < limit-degraded {
						t.Error(what)
					}
				}
				t.Log(what)
			}
		})
	}
	t.Logf("of %d runs %d had a late reply, and admitted %d to %d; the others had %d degraded decisions", total, late, least, most, blamed)
	if soak && 2*late >= total {
		t.Errorf("a reply was late in %d of %d runs: too many for a test", late, total)
	}
}
