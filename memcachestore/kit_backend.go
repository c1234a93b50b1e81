package memcachestore

import (
	"context"
	"fmt"
	"time"
)

// backend is one shard: it stores small values under keys and replaces them by compare-and-swap. Its methods are safe for
// concurrent use. They return when ctx ends, and an error that wraps sluice.ErrClosed once the shard is closed.
//
// After an error each of the swaps may have been made or not.
type backend interface {
	// get sets out[i] to the value of keys[i], all in one round trip. No key is read before an earlier one of the list.
	get(ctx context.Context, keys []string, out []stored) error
	// swap makes the swaps independently of each other, all in one round trip, and sets lost of each.
	swap(ctx context.Context, swaps []swap) error
	// String names the shard in errors.
	fmt.Stringer
}

// stored is the value of a key and its version. The zero stored is that of a key without a value.
type stored struct {
	value   []byte
	version uint64 // changes with every swap, never 0 with a value
}

// swap replaces the value of a key if it still has a version.
type swap struct {
	key       string
	version   uint64        // of the value to replace; 0 if the key must have none
	old       []byte        // that value, for backends that drop it when they have no room; nil if the loss does no harm
	value     []byte        // at most maxValue bytes; nil removes the key
	ttl       time.Duration // minimum time for which the value is needed; forever if it does not expire
	overwrite bool          // replace any version
	lost      bool          // set by the backend: the key has another version and is unchanged
}

const (
	// maxValue bounds a value, read or written. The largest that there can be, a full sliding log beside a counter for
	// each number of sub-windows, has under 120 KB.
	maxValue = 256 << 10
	// forever is the TTL of a value that does not expire.
	forever = 0
)
