package memcachestore

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/sluiceproject/sluice/internal/group"
)

// digest names an item: 128 bits of SHA-256. No byte of a caller's key reaches a server: a line break in it could
// otherwise be a command, a space two keys, and 250 bytes are all that Memcached takes.
type digest [16]byte

// What a digest is of comes first in it, then parts of fixed length, then the key, so that no two are the same bytes.
const (
	ofItem   = "\x01i"
	ofCharge = "\x01c"
	ofRule   = "\x01n"
)

func itemDigest(rule group.RuleID, key string) digest {
	return digestOf(ofItem, rule, 0, key)
}

// chargeDigest names where it is remembered that an ID was charged, once the item has no more room for it.
func chargeDigest(rule group.RuleID, key string, id uint64) digest {
	return digestOf(ofCharge, rule, id, key)
}

// ruleDigest names where a server keeps the numbers that a rule has had there.
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

// nameLength is how much of a stored key is the digest's.
const nameLength = 22

// name is a digest as a stored key.
func (s *Store) name(d digest) string {
	b := make([]byte, 0, 64)
	return string(base64.RawURLEncoding.AppendEncode(append(b, s.keyPrefix...), d[:]))
}

// pick chooses the server that keeps a key: the one with the highest score. When a server is added or taken away, only
// its own share of the keys moves.
func (s *Store) pick(d digest) *server {
	best := s.servers[0]
	if len(s.servers) == 1 {
		return best
	}
	var most uint64
	for _, v := range s.servers {
		if score := mix(binary.LittleEndian.Uint64(d[:]) ^ v.seed); score >= most {
			best, most = v, score
		}
	}
	return best
}

func seedOf(addr string) uint64 {
	sum := sha256.Sum256([]byte(addr))
	return binary.LittleEndian.Uint64(sum[:])
}

// mix is the finalizer of splitmix64: every bit of the input changes about half of the output's.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
