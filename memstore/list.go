package memstore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/step"
	"github.com/sluiceproject/sluice/internal/table"
)

var _ sluice.BucketLister = (*Store)(nil)

// List returns a page of the stored buckets, if [Config].KeepKeys is set, in no particular order. It lists all buckets
// except those for whose keys there was no room and those that were loaded from a snapshot.
func (s *Store) List(ctx context.Context, q sluice.ListOptions) (sluice.BucketPage, error) {
	if err := ctx.Err(); err != nil {
		return sluice.BucketPage{}, err
	}
	if s.keys == nil {
		return sluice.BucketPage{}, fmt.Errorf("memstore: list: %w: store does not keep keys: set Config.KeepKeys", errors.ErrUnsupported)
	}
	if err := private.CheckListOptions(&q); err != nil {
		return sluice.BucketPage{}, fmt.Errorf("memstore: %w", err)
	}
	part, end, err := readPageToken(q.PageToken)
	if err != nil {
		return sluice.BucketPage{}, err
	}
	rules := make(map[group.RuleID]*sluice.Rule, len(q.Rules))
	for _, r := range q.Rules {
		rules[private.RuleOf(r).ID] = r
	}
	var page sluice.BucketPage
	now := s.micros()
	visited := 0
	for ; part < keyParts; part, end = part+1, -1 {
		for end != 0 {
			n := min(q.PageSize-len(page.Buckets), maxVisits-visited)
			if n == 0 {
				page.NextPageToken = fmt.Sprintf("%d/%d", part, end)
				return page, nil
			}
			var some []keptKey
			some, end = s.keys.parts[part].page(end, n)
			visited += len(some)
			for i := range some {
				if rule := rules[some[i].rule]; rule != nil || len(rules) == 0 {
					page.Buckets = s.appendBucket(page.Buckets, rule, &some[i], now)
				}
			}
		}
	}
	return page, nil
}

// maxVisits is the maximum number of kept keys that a page visits.
const maxVisits = 10_000

// readPageToken returns where a page starts: the part of the keys, and how many of it are left; -1 means all.
func readPageToken(text string) (part, end int, err error) {
	if text == "" {
		return 0, -1, nil
	}
	before, after, _ := strings.Cut(text, "/")
	part, err1 := strconv.Atoi(before)
	end, err2 := strconv.Atoi(after)
	if err1 != nil || err2 != nil || part < 0 || part >= keyParts || end < -1 {
		return 0, 0, fmt.Errorf("memstore: list: %w: PageToken is not the NextPageToken of a page: leave it empty for the first page", sluice.ErrInvalid)
	}
	return part, end, nil
}

// appendBucket appends the entry of a key, unless it has expired.
func (s *Store) appendBucket(to []sluice.BucketInfo, rule *sluice.Rule, k *keptKey, now int64) []sluice.BucketInfo {
	left := s.keys.expiresAt(k, now) - now
	if left <= 0 {
		return to
	}
	b := sluice.BucketInfo{
		Rule: rule, RuleDigest: fmt.Sprintf("%016x%016x", k.rule.A, k.rule.B), Key: k.key,
		Blocked: k.params == nil, ExpiresIn: time.Duration(left) * time.Microsecond,
	}
	if k.params != nil {
		b.Kind = k.params.Name()
	}
	return append(to, b)
}

const (
	keyParts = 16
	// keptBytes is about the memory of a kept key in addition to its own bytes: its entry, its place in the index, and
	// the rounding of allocations.
	keptBytes = 144
	// maxProbes is the number of keys that a new key without room visits, to replace expired ones.
	maxProbes = 16
)

// keys are the keys of buckets and blocks in a table, which contains only hashes. A key is added when its state is
// inserted, which is rare: decisions about a key with a state do not use keys. It is removed together with the slot of
// its expired state, so that the next decision about it inserts it again.
type keys struct {
	table *table.Table
	seed  maphash.Seed
	parts [keyParts]keysPart
}

type keysPart struct {
	mu       sync.Mutex // guards the fields below; acquired before the locks of the table
	maxBytes int64
	bytes    int64
	kept     []keptKey
	index    map[keyID]int // index in kept
}

type keptKey struct {
	keyID
	params *step.Params // nil for a block
}

type keyID struct {
	rule     group.RuleID
	key      string
	identity uint64 // of the limit; 0 for a block
}

func newKeys(t *table.Table, maxBytes int64) *keys {
	ks := &keys{table: t, seed: maphash.MakeSeed()}
	for i := range ks.parts {
		ks.parts[i] = keysPart{maxBytes: maxBytes / keyParts, index: map[keyID]int{}}
	}
	return ks
}

func (ks *keys) usedBytes() (n int64) {
	for i := range ks.parts {
		p := &ks.parts[i]
		p.mu.Lock()
		n += p.bytes
		p.mu.Unlock()
	}
	return n
}

// add adds a key whose state was, or may have been, inserted. A block has no params.
func (ks *keys) add(rule group.RuleID, key string, params *step.Params, now int64) {
	k := keptKey{keyID{rule: rule, key: key}, params}
	if params != nil {
		k.identity = params.Identity()
	}
	p := &ks.parts[maphash.String(ks.seed, key)%keyParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.index[k.keyID]; ok || ks.expiresAt(&k, now) <= now {
		return
	}
	need := keptBytes + int64(len(key))
	for n := 0; n < maxProbes && len(p.kept) > 0 && p.bytes+need > p.maxBytes; n++ {
		if i := rand.IntN(len(p.kept)); ks.isFree(&p.kept[i], now) { // at random, because keys that live long are adjacent
			p.remove(i)
		}
	}
	if p.bytes+need > p.maxBytes {
		return
	}
	k.key = strings.Clone(key) // it may be a substring of a large string
	p.bytes += need
	p.index[k.keyID] = len(p.kept)
	p.kept = append(p.kept, k)
}

// remove replaces a key with the last one. List goes from the last to the first, so that it misses none of them.
func (p *keysPart) remove(i int) {
	p.bytes -= keptBytes + int64(len(p.kept[i].key))
	delete(p.index, p.kept[i].keyID)
	last := len(p.kept) - 1
	if i != last {
		p.kept[i] = p.kept[last]
		p.index[p.kept[i].keyID] = i
	}
	p.kept[last] = keptKey{}
	p.kept = p.kept[:last]
}

// expiresAt returns the time at which the key's state expires; 0 if there is none.
func (ks *keys) expiresAt(k *keptKey, now int64) int64 {
	h := ks.table.Hash(k.rule, k.key)
	if k.params == nil {
		return ks.table.BlockedUntil(h, now)
	}
	return ks.table.ExpiresAt(h, k.params)
}

// isFree reports whether the key has no state, and makes sure that its next state is inserted.
func (ks *keys) isFree(k *keptKey, now int64) bool {
	h := ks.table.Hash(k.rule, k.key)
	if k.params == nil {
		return ks.table.BlockedUntil(h, now) == 0
	}
	return ks.table.Free(h, k.params, now)
}

// page copies n keys before the index end, the last first; -1 means all. It returns how many are left before them.
func (p *keysPart) page(end, n int) (some []keptKey, left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if end < 0 || end > len(p.kept) {
		end = len(p.kept)
	}
	left = max(0, end-n)
	some = slices.Clone(p.kept[left:end])
	slices.Reverse(some)
	return some, left
}
