package plainfile

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"
)

// Contents holds the contents of files at the last read. The zero value is that of files that were not read yet. It is
// not safe for concurrent use.
type Contents struct{ last [][]byte }

// Read reads the files one by one and reports whether their contents differ from the last time, and if so returns them.
// The content of a file that cannot be read is its error, so that errors, which are joined, are returned once and not
// on every call.
func (c *Contents) Read(names []string, read func(name string) ([]byte, error)) (data [][]byte, changed bool, err error) {
	var faults []error
	data = make([][]byte, len(names))
	for i, name := range names {
		b, err := read(name)
		if err != nil {
			faults = append(faults, err)
			b = []byte(err.Error())
		}
		data[i] = b
	}
	if c.last != nil && slices.EqualFunc(data, c.last, bytes.Equal) {
		return nil, false, nil
	}
	c.last = data
	return data, true, errors.Join(faults...)
}

// Poll calls look at each interval until the context ends. It polls because no notifier reports all ways of replacing a
// file on all platforms.
func Poll(ctx context.Context, interval time.Duration, look func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			look()
		}
	}
}
