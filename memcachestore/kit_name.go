package memcachestore

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/sluiceproject/sluice/internal/group"
)

// digest names an item: 128 bits of SHA-256. No byte of a caller's key reaches a backend, where a line break could be
// read as a command, a space as two keys, and a long key be rejected.
type digest [16]byte

// A digest is computed from one of these, then parts of fixed length, then the key, so that no two inputs are equal.
const (
	ofItem   = "\x01i"
	ofCharge = "\x01c"
	ofRule   = "\x01n"
)

func itemDigest(rule group.RuleID, key string) digest {
	return digestOf(ofItem, rule, 0, key)
}

// chargeDigest names the charge of an ID that is no longer in its item.
func chargeDigest(rule group.RuleID, key string, id uint64) digest {
	return digestOf(ofCharge, rule, id, key)
}

// ruleDigest names a shard's record of a rule.
func ruleDigest(rule group.RuleID) digest { return digestOf(ofRule, rule, 0, "") }

func digestOf(what string, rule group.RuleID, id uint64, key string) digest {
	var room [128]byte
	b := append(room[:0], what...)
	b = binary.LittleEndian.AppendUint64(b, rule.A)
	b = binary.LittleEndian.AppendUint64(b, rule.B)
	b = binary.LittleEndian.AppendUint64(b, id)
	sum := sha256.Sum256(append(b, key...))
	return digest(sum[:16])
}

// nameLength is the length of a stored key without its prefix.
const nameLength = 22

// name returns the stored key of a digest.
func (s *kit) name(d digest) string {
	b := make([]byte, 0, 64)
	return string(base64.RawURLEncoding.AppendEncode(append(b, s.keyPrefix...), d[:]))
}

// unusedKey returns a stored key that never has a value.
func (s *kit) unusedKey() string { return s.name(digest{}) }

// place returns the shard of an item.
func (s *kit) place(d digest) int {
	if len(s.shards) == 1 {
		return 0
	}
	return s.pick(binary.LittleEndian.Uint64(d[:]))
}
