package redisstore

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/step"
)

var _ sluice.BucketLister = (*Store)(nil)

const (
	// maxScans is the maximum number of SCAN steps per page, for a store whose keys are a small part of the server's.
	maxScans = 50
	// scanCount is the minimum COUNT of a SCAN step, small enough not to delay other clients of the server.
	scanCount = 200
	// maxAsking is the maximum number of concurrent PTTL commands.
	maxAsking = 32
)

// List returns a page of the stored buckets, of all primaries in turn. It uses SCAN with a bounded number of steps per
// page, and so never blocks the server for long. The Redis user needs the permissions scan and pttl, and in a Cluster
// role.
func (s *Store) List(ctx context.Context, q sluice.ListOptions) (sluice.BucketPage, error) {
	if err := private.CheckListOptions(&q); err != nil {
		return sluice.BucketPage{}, fmt.Errorf("redisstore: %w", err)
	}
	link, err := s.connected()
	if err != nil {
		return sluice.BucketPage{}, unavailable(err)
	}
	primaries, err := link.client.Primaries(ctx)
	if err != nil {
		return sluice.BucketPage{}, unavailable(err)
	}
	at, err := readCursor(q.PageToken, len(primaries), cursorScope("list", q.Rules))
	if err != nil {
		return sluice.BucketPage{}, err
	}
	rules := make(map[string]*sluice.Rule, len(q.Rules))
	for _, r := range q.Rules {
		rules[string(appendRule(nil, private.RuleOf(r).ID))] = r
	}
	var page sluice.BucketPage
	for range maxScans {
		var stored []string
		if stored, at.scan, err = s.scan(ctx, primaries[at.node], at.scan, max(q.PageSize, scanCount)); err != nil {
			return sluice.BucketPage{}, unavailable(err)
		}
		found := s.listed(stored, rules)
		if err := s.keepTimes(ctx, primaries[at.node], found); err != nil {
			return sluice.BucketPage{}, unavailable(err)
		}
		for _, f := range found {
			if f.listed.ExpiresIn > 0 {
				page.Buckets = append(page.Buckets, f.listed)
			}
		}
		if at.scan == "0" {
			at.node++
		}
		if at.node == len(primaries) {
			return page, nil
		}
		if len(page.Buckets) >= q.PageSize {
			break
		}
	}
	page.NextPageToken = at.String()
	return page, nil
}

// cursor is the position of a listing.
type cursor struct {
	node, of int    // index of the primary, and number of primaries
	scan     string // cursor of SCAN
	scope    string // digest of the operation and the rules
}

// cursorScope returns a digest that differs between listings whose page tokens must not be mixed up, because a listing
// would skip keys with a token of another one.
func cursorScope(verb string, rules []*sluice.Rule) string {
	h := fnv.New32a()
	io.WriteString(h, verb)
	for _, r := range rules {
		_, _ = h.Write(appendRule(nil, private.RuleOf(r).ID))
	}
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

func (c cursor) String() string { return fmt.Sprintf("%d/%d/%s/%s", c.node, c.of, c.scan, c.scope) }

func readCursor(text string, primaries int, scope string) (cursor, error) {
	c := cursor{of: primaries, scan: "0", scope: scope}
	if text == "" {
		return c, nil
	}
	parts := strings.Split(text, "/")
	if len(parts) == 4 && parts[3] == scope {
		node, err1 := strconv.Atoi(parts[0])
		of, err2 := strconv.Atoi(parts[1])
		_, err3 := strconv.ParseUint(parts[2], 10, 64)
		if err1 == nil && err2 == nil && err3 == nil && node >= 0 && node < of {
			if of != primaries {
				return c, fmt.Errorf("redisstore: list: %w: the Cluster had %d primaries and now has %d: start again with an empty PageToken", sluice.ErrInvalid, of, primaries)
			}
			return cursor{node, of, parts[2], scope}, nil
		}
	}
	return c, fmt.Errorf("redisstore: list: %w: PageToken is not NextPageToken of a page of these rules: leave it empty to start", sluice.ErrInvalid)
}

// globEscape escapes a prefix for use in a glob pattern.
var globEscape = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// scan runs one SCAN step.
func (s *Store) scan(ctx context.Context, c Commander, from string, count int) (stored []string, next string, err error) {
	pattern := globEscape.Replace(s.names.prefix) + "*"
	reply, err := c.Do(ctx, "SCAN", from, "MATCH", pattern, "COUNT", strconv.Itoa(count))
	if err != nil {
		return nil, "", err
	}
	v, err := valueOf(reply)
	if err != nil {
		return nil, "", err
	}
	parts, err := v.ToArray()
	if err != nil || len(parts) != 2 {
		return nil, "", fmt.Errorf("SCAN: %w", errShape)
	}
	if next, err = parts[0].ToString(); err != nil {
		return nil, "", fmt.Errorf("SCAN: %w", err)
	}
	for i := range parts[1].list {
		stored = append(stored, parts[1].list[i].text)
	}
	return stored, next, nil
}

type foundKey struct {
	stored string
	listed sluice.BucketInfo
}

// listed parses stored keys. It skips keys that are neither a bucket nor a block, and those of other rules.
func (s *Store) listed(stored []string, rules map[string]*sluice.Rule) (found []foundKey) {
	for _, key := range stored {
		l, ok := s.names.parse(key)
		if !ok {
			continue
		}
		l.Rule = rules[l.RuleDigest]
		if l.Rule != nil || len(rules) == 0 {
			found = append(found, foundKey{key, l})
		}
	}
	return found
}

// keepTimes reads the TTLs of the keys, many at a time, because a client writes concurrent commands together.
func (s *Store) keepTimes(ctx context.Context, c Commander, found []foundKey) error {
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex // guards first
		first error
	)
	for worker := range min(len(found), maxAsking) {
		wait.Go(func() {
			for i := worker; i < len(found); i += maxAsking {
				reply, err := c.Do(ctx, "PTTL", found[i].stored)
				if err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
					return
				}
				if ms, ok := reply.(int64); ok && ms > 0 {
					found[i].listed.ExpiresIn = time.Duration(ms) * time.Millisecond
				}
			}
		})
	}
	wait.Wait()
	return first
}

const (
	tagLength  = 12
	ruleLength = 12
)

// parse parses a stored key. It returns false unless the key is that of a bucket or a block.
func (n *namer) parse(stored string) (l sluice.BucketInfo, ok bool) {
	rest, ok := strings.CutPrefix(stored, n.prefix)
	tag := ""
	if ok && n.tagged {
		if len(rest) < tagLength+2 || rest[0] != '{' || rest[tagLength+1] != '}' {
			return l, false
		}
		tag, rest = rest[1:tagLength+1], rest[tagLength+2:]
	}
	if !ok || len(rest) < 2 || rest[0] != version {
		return l, false
	}
	letter := rest[1]
	rest = rest[2:]
	switch kind := strings.IndexByte(kindLetters, letter); {
	case letter == letterBlock:
		l.Blocked = true
	case letter == letterInitial:
		l.Kind = step.InitialName
	case kind <= 0:
		return l, false
	case step.Kind(kind) == step.Slices:
		slices, err := strconv.Atoi(rest[:min(2, len(rest))])
		if err != nil || len(rest) < 2 {
			return l, false
		}
		rest = rest[2:]
		l.Kind = step.Slices.Name(slices)
	default:
		l.Kind = step.Kind(kind).Name(0)
	}
	if len(rest) <= ruleLength {
		return l, false
	}
	l.RuleDigest = rest[:ruleLength]
	switch key := rest[ruleLength+1:]; rest[ruleLength] {
	case ':':
		l.Key = key
		l.HashTagged = n.tagged && tag != (&name{key: key}).tag()
	case '#':
		l.KeyDigest = key
	default:
		return l, false
	}
	return l, true
}
