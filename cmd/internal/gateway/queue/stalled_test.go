package queue

import (
	"net"
	"testing"
	"time"
)

// A server that accepts connections and never replies delays neither start nor end: Open and Close return before the
// connection times out.
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
		t.Errorf("Open took %v, want about %v", took, openIn)
	}
	if q.Err() == nil {
		t.Error("Err is nil")
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took >= requestTimeout {
		t.Errorf("Open and Close took %v", took)
	}
}
