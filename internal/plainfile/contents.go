package plainfile

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"
)

// Contents are what files held when they were read last. The zero Contents are of files that were not read yet. It is for one
// goroutine at a time.
type Contents struct{ last [][]byte }

// Read reads the files one by one and reports whether they hold something else than last time. It returns what they hold
// if so. A file that cannot be read holds its error, so that errors, which are joined, are returned once and not at each
// look.
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

// Poll calls look at each interval until the context ends. Files are replaced in ways that no notifier reports everywhere.
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
