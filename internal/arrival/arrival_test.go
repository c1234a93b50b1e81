//go:build unix

package arrival_test

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/arrival"
)

// pair returns a watched connection and its other end.
func pair(t *testing.T) (waits *arrival.Waits, here, there net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	waits = arrival.Dialing()
	here, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	here = waits.Made(here)
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		here.Close()
		there.Close()
	})
	return waits, here, there
}

// Budgets of which one has passed at once and one never passes.
const (
	none = time.Nanosecond
	long = time.Hour
)

func patience(budget time.Duration, all ...*arrival.Waits) (time.Duration, bool) {
	return arrival.Patience(budget, slices.Values(all))
}

// TestPatience checks that a server is late if it has not replied to a written request and no part of a reply has
// arrived.
func TestPatience(t *testing.T) {
	waits, here, there := pair(t)
	expect := func(when string, late, own bool) {
		t.Helper()
		left, isOwn := patience(none, waits)
		if (left == 0) != late || isOwn != own {
			t.Errorf("%s: server late is %v, own is %v", when, left == 0, isOwn)
		}
	}
	expect("nothing was written", false, true)
	waits.Wrote(1)
	waits.Wrote(2)
	expect("two were written", true, false)
	if left, own := patience(long, waits); left <= 0 || left > long || own {
		t.Errorf("two were written just now: %v left, own is %v", left, own)
	}
	if _, err := there.Write([]byte("ab")); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(time.Minute); time.Now().Before(late); runtime.Gosched() {
		if left, _ := patience(none, waits); left > 0 {
			break // it has arrived
		}
	}
	expect("a reply has arrived", false, true)
	b := make([]byte, 1)
	if _, err := io.ReadFull(here, b); err != nil {
		t.Fatal(err)
	}
	expect("part of it was read", false, true)
	if _, err := io.ReadFull(here, b); err != nil {
		t.Fatal(err)
	}
	expect("it was read and not understood yet", false, true)
	waits.Answered(1)
	expect("one was answered", true, false)
	waits.Answered(2)
	expect("both were answered", false, true)
	waits.Wrote(2)
	expect("the reply was read before the write returned", false, true)
}

// TestPassedDeadline checks that data that has arrived is read after the deadline, and that a read does not wait for
// other data.
func TestPassedDeadline(t *testing.T) {
	_, here, there := pair(t)
	if _, err := there.Write([]byte("ab")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := io.ReadFull(here, b); err != nil { // both bytes have arrived
		t.Fatal(err)
	}
	if err := here.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(here, b); err != nil || b[0] != 'b' {
		t.Errorf("%q %v", b, err)
	}
	if _, err := here.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing has arrived: error %v", err)
	}
}

// TestSilentConnection checks that one late connection suffices, also one that is being opened.
func TestSilentConnection(t *testing.T) {
	quiet, _, _ := pair(t)
	if left, _ := patience(none, quiet, arrival.Dialing()); left != 0 {
		t.Errorf("%v left for a connection that is being opened", left)
	}
	other, _, _ := pair(t)
	other.Wrote(1)
	if left, _ := patience(none, quiet, other); left != 0 {
		t.Errorf("%v left for one of two connections", left)
	}
	other.Answered(1)
	if left, own := patience(none, quiet, other); left == 0 || !own {
		t.Errorf("%v left, own is %v", left, own)
	}
}
