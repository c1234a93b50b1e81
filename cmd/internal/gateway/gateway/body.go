package gateway

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// body is a request's body that counts what was read of it.
type body struct {
	io.ReadCloser
	count   atomic.Int64
	ended   atomic.Bool // all was read
	timeout atomic.Pointer[timeout]
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count.Add(int64(n))
	b.timeout.Load().reset()
	switch {
	case err == nil:
	case err == io.EOF:
		b.ended.Store(true)
	case errors.As(err, new(*http.MaxBytesError)):
		bounds.BodySize.Reached()
	}
	return n, err
}

// arrival is how long a body that is not needed may take to arrive without costing the client its connection.
const arrival = 100 * time.Millisecond

// arrives reports whether the body's end arrives soon. What arrives is dropped.
func (b *body) arrives(w http.ResponseWriter) bool {
	if b.ended.Load() {
		return true
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(arrival))
	_, err := io.Copy(io.Discard, b)
	_ = control.SetReadDeadline(time.Time{})
	return err == nil
}

// end bounds how long the server may take to read what a handler has left. Of HTTP/2 it reads no more.
func (b *body) end(w http.ResponseWriter, proto int, idle time.Duration) {
	if proto == 1 && !b.ended.Load() {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(idle))
	}
}
