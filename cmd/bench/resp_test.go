package main

import (
	"bytes"
	"errors"
	"net"
	"testing"
)

func TestReadFive(t *testing.T) {
	const text = "*5\r\n:0\r\n:1000000\r\n:999999\r\n:-1\r\n:1800\r\n"
	five, size, err := readFive([]byte(text + "*5"))
	if want := [5]int64{0, 1_000_000, 999_999, -1, 1800}; err != nil || size != len(text) || five != want {
		t.Errorf("%v %d %v", five, size, err)
	}
	for i := range text {
		if _, size, err := readFive([]byte(text[:i])); size != 0 || err != nil {
			t.Errorf("incomplete %q was accepted: %v", text[:i], err)
		}
	}
	for _, text := range []string{"-ERR no\r\n", "*5\r\n:0\r\n-1\r\n", "$5\r\nhello\r\n"} {
		if _, _, err := readFive([]byte(text)); !errors.Is(err, errCheck) {
			t.Errorf("%q was accepted: %v", text, err)
		}
	}
	c := &respClient{}
	for _, text := range []string{ // denied, with another limit, and with a wait
		"*5\r\n:1\r\n:1000000\r\n:0\r\n:-1\r\n:1800\r\n", "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n", "*5\r\n:0\r\n:1000000\r\n:0\r\n:3\r\n:1800\r\n",
	} {
		if _, err := c.checked([]byte(text)); !errors.Is(err, errCheck) {
			t.Errorf("%q was accepted: %v", text, err)
		}
	}
}

// TestRESPLoops sends requests to the floor, and to a server that always allows, which must not be accepted as a
// limiter.
func TestRESPLoops(t *testing.T) {
	addrs, err := freeAddrs(1)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = serveFloorTCP(addrs[0]) }() // until the test binary ends
	if err := reachable(t.Context(), addrs[0]); err != nil {
		t.Fatal(err)
	}
	order := respOrder(1, 1001) // not only full rounds
	for i := range respLoads[:2] {
		floor := &respClient{addr: addrs[0], floor: true}
		took, err := floor.pipelined(t.Context(), &respLoads[i], order)
		if err != nil || len(took.waits) != len(order) || took.percentile(0.5) > took.percentile(0.99) {
			t.Errorf("%s: %v", respLoads[i].name, err)
		}
	}

	generous, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer generous.Close()
	go allowAll(generous)
	c := &respClient{addr: generous.Addr().String()}
	if _, err := c.pipelined(t.Context(), &respLoads[0], order); err != nil {
		t.Error(err)
	}
	if err := c.verify(order); !errors.Is(err, errCheck) {
		t.Errorf("a server that does not count was accepted: %v", err)
	}
	if err := c.exhaust(); !errors.Is(err, errCheck) {
		t.Errorf("a server that does not deny was accepted: %v", err)
	}
}

// allowAll sends the same reply to each command.
func allowAll(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			b := make([]byte, 64<<10)
			for {
				n, err := conn.Read(b)
				if err != nil {
					return
				}
				commands := bytes.Count(b[:n], []byte("CL.THROTTLE"))
				if _, err := conn.Write(bytes.Repeat([]byte("*5\r\n:0\r\n:1000000\r\n:999999\r\n:-1\r\n:1800\r\n"), commands)); err != nil {
					return
				}
			}
		}()
	}
}
