package gateway

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// body is a request's body that counts the bytes read.
type body struct {
	io.ReadCloser
	count   atomic.Int64
	ended   atomic.Bool // it was read completely
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

// arrival is the time within which an unneeded body must arrive to keep the connection open.
const arrival = 100 * time.Millisecond

// arrives reads and discards the body, and reports whether its end arrives in time.
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

// end bounds the time in which the HTTP/1 server reads the unread rest of the body. An HTTP/2 server does not read it.
func (b *body) end(w http.ResponseWriter, proto int, idle time.Duration) {
	if proto == 1 && !b.ended.Load() {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(idle))
	}
}
