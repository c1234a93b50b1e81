package queue

import "github.com/sluiceproject/sluice/internal/bounds"

// shares counts the items of each key, so that no key has the whole queue. Items of rules without keys count for their
// client. With several gateways each counts what the streams tell, and so may admit a few more than the maximum.
type shares struct {
	maxCount, maxBytes int64 // 0: not bounded
	used               map[shareName]use
	// reserved are items that count and that the stream has not told of yet.
	reserved map[string]*itemHeader
}

type shareName struct{ rule, key, client string }

type use struct{ count, bytes int64 }

func newShares(maxCount, maxBytes int64) shares {
	return shares{maxCount: maxCount, maxBytes: maxBytes, used: make(map[shareName]use), reserved: make(map[string]*itemHeader)}
}

func (o *itemHeader) share() shareName {
	if o.key == "" {
		return shareName{client: o.client}
	}
	return shareName{rule: o.rule, key: o.key}
}

// reserve counts an item that is to be written, unless its key has its share.
func (s *shares) reserve(id string, o *itemHeader) bool {
	name := o.share()
	switch u := s.used[name]; {
	case name == shareName{}: // of neither a key nor a known client
	case s.maxCount > 0 && u.count >= s.maxCount:
		bounds.QueueItemsPerKey.Reached()
		return false
	case s.maxBytes > 0 && u.bytes+int64(o.size) > s.maxBytes:
		bounds.QueueBytesPerKey.Reached()
		return false
	}
	s.count(o, 1)
	s.reserved[id] = o
	return true
}

// add counts an item that is there, unless it was reserved.
func (s *shares) add(id string, o *itemHeader) {
	if s.reserved[id] == nil {
		s.count(o, 1)
	}
	delete(s.reserved, id)
}

// withdraw ends what reserve began for an item that is not there.
func (s *shares) withdraw(id string) {
	if o := s.reserved[id]; o != nil {
		delete(s.reserved, id)
		s.remove(o)
	}
}

func (s *shares) remove(o *itemHeader) { s.count(o, -1) }

func (s *shares) count(o *itemHeader, n int64) {
	name := o.share()
	u := s.used[name]
	u.count += n
	u.bytes += n * int64(o.size)
	if u.count <= 0 {
		delete(s.used, name)
		return
	}
	s.used[name] = u
}
