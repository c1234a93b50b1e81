package queue

import (
	"net"
	"testing"
	"time"
)

// A server that accepts connections and says nothing holds up neither the start nor the end: Open and Close return without
// waiting for as long as a connection takes to fail.
func TestOpenSilent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	began := time.Now()
	q, err := Open(Config{URL: "nats://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took >= requestTimeout {
		t.Errorf("it took %v to open, want about %v", took, openIn)
	}
	if q.Err() == nil {
		t.Error("it is said to be available")
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took >= requestTimeout {
		t.Errorf("it took %v to open and close", took)
	}
}
