package redisstore

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// A stored key is, one after the other and each of known width but for the last:
//
//	prefix      Config.KeyPrefix
//	{digest}    the hash tag, in a Cluster only: on one server it would only cost memory
//	1           the version of all that follows and of what is stored under it
//	kind        a letter; sub-windows are followed by their number, IDs by the ID
//	rule        twelve characters of a digest of its name
//	: or #      what follows is the key itself, or a digest of it
//	key
//
// so that two different buckets never share one.

const version = '1'

// Letters for what is not a state.
const (
	letterBlock   = 'x'
	letterID      = 'd'
	letterNumbers = 'n'
)

// kindLetters are by step.Kind. Two were given up: b and i, under which an earlier version kept buckets and interval
// buckets in other forms.
const kindLetters = "?trwcslf"

// longest is the longest key that is stored as it is: a UUID, say. A digest of a longer one is shorter.
const longest = 36

// name is what a bucket's keys are made of.
type name struct {
	rule group.RuleID
	key  string
	slot string
}

// namer writes stored keys.
type namer struct {
	prefix string
	tagged bool // with Cluster hash tags
}

func (n *namer) begin(dst []byte, of *name) []byte {
	dst = append(dst, n.prefix...)
	if n.tagged {
		dst = append(dst, '{')
		dst = append(dst, of.tag()...)
		dst = append(dst, '}')
	}
	return append(dst, version)
}

// tag is what keys of one call must share in a Cluster. Without a slot a key's buckets of all rules are together.
func (of *name) tag() string {
	text := "key " + of.key
	if of.slot != "" {
		text = "slot " + of.slot
	}
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

func (of *name) end(dst []byte) []byte {
	dst = appendRule(dst, of.rule)
	if isPlainText(of.key) {
		dst = append(dst, ':')
		return append(dst, of.key...)
	}
	sum := sha256.Sum256([]byte(of.key))
	dst = append(dst, '#')
	return base64.RawURLEncoding.AppendEncode(dst, sum[:16])
}

// appendRule appends a rule's digest.
func appendRule(dst []byte, id group.RuleID) []byte {
	var rule [9]byte
	binary.LittleEndian.PutUint64(rule[:], id.A)
	rule[8] = byte(id.B)
	return base64.RawURLEncoding.AppendEncode(dst, rule[:])
}

func isPlainText(key string) bool {
	if len(key) > longest {
		return false
	}
	for i := range len(key) {
		if c := key[i]; c <= ' ' || c > '~' || c == '{' || c == '}' {
			return false
		}
	}
	return true
}

// state names where the states of one kind are kept.
func (n *namer) state(dst []byte, of *name, p *step.Params) []byte {
	dst = append(n.begin(dst, of), kindLetters[p.Kind])
	if p.Kind == step.Slices {
		dst = append(dst, '0'+byte(p.Slices/10), '0'+byte(p.Slices%10))
	}
	return of.end(dst)
}

// block names where it is kept until when a key is blocked, whatever the kind of its limit.
func (n *namer) block(dst []byte, of *name) []byte {
	return of.end(append(n.begin(dst, of), letterBlock))
}

// id names where a charged request is remembered.
func (n *namer) id(dst []byte, of *name, id uint64) []byte {
	dst = append(n.begin(dst, of), letterID)
	dst = base64.RawURLEncoding.AppendEncode(dst, binary.LittleEndian.AppendUint64(nil, id))
	return of.end(dst)
}
