package logs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// counter counts the bytes that are read from a log.
type counter struct {
	r    io.Reader
	n    int64
	size int64 // total, or 0 if unknown
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// maxZstdWindow is the maximum memory of a zstd log. Default levels use up to 8 MiB, long-distance matching 128 MiB.
const maxZstdWindow = 128 << 20

// start opens the log and detects its format.
func (l *Log) start(s Source) error {
	l.count = &counter{r: s.Reader, size: s.Size}
	in := bufio.NewReaderSize(l.count, 64<<10)
	lines, err := decompressed(in)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	l.lines = newLineReader(lines)
	return l.open()
}

// decompressed returns a reader of the content, which may consist of several compressed parts. It reads as little as
// its caller, so that a small file with a huge content needs no memory.
func decompressed(in *bufio.Reader) (io.Reader, error) {
	magic, _ := in.Peek(6)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(in)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}), len(magic) >= 4 && magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:4], []byte{0x2a, 0x4d, 0x18}):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
		return z, err
	case bytes.HasPrefix(magic, []byte("BZh")):
		return nil, errors.New("bzip2 is not supported: write bzcat FILE | sluice … -")
	case bytes.HasPrefix(magic, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return nil, errors.New("xz is not supported: write xzcat FILE | sluice … -")
	}
	return in, nil
}
