package memcachestore

import (
	"context"
	"fmt"
	"time"
)

// backend is one shard: it stores small values under keys and replaces them by compare-and-swap. Its methods are safe
// for concurrent use. They return when ctx ends, and return an error that wraps sluice.ErrClosed once the shard is
// closed.
//
// After an error, each of the swaps may or may not have been made.
type backend interface {
	// get sets out[i] to the value of keys[i], all in one round trip. No key is read before an earlier one of the list.
	get(ctx context.Context, keys []string, out []stored) error
	// swap makes the swaps independently of each other, all in one round trip, and sets the field lost of each.
	swap(ctx context.Context, swaps []swap) error
	// String names the shard in errors.
	fmt.Stringer
}

// stored is the value of a key and its version. The zero value means that the key has no value.
type stored struct {
	value   []byte
	version uint64 // changes with every swap, never 0 with a value
}

// swap replaces the value of a key if its version is unchanged.
type swap struct {
	key       string
	version   uint64        // of the value to replace; 0 if the key must have no value
	old       []byte        // that value, for backends that drop it when they are full; nil if losing it is harmless
	value     []byte        // at most maxValue bytes; nil removes the key
	ttl       time.Duration // minimum time for which the value is needed; forever means that it does not expire
	overwrite bool          // replace any version
	lost      bool          // set by the backend: the key has another version and is unchanged
}

const (
	// maxValue is the maximum size of a value, read or written. The largest possible value, a full sliding log and a
	// counter for each number of sub-windows, has less than 120 KB.
	maxValue = 256 << 10
	// forever is the TTL of a value that does not expire.
	forever = 0
)
