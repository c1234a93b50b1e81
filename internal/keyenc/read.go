package keyenc

import "encoding/binary"

// Kind is the kind of a part of a key.
type Kind uint8

const (
	IsValue  Kind = iota
	IsAbsent      // there was no value
	IsNoAddr      // the peer had no address
	IsDigest      // of a secret value
)

// Read returns the kind of a part, or of a key that is not a key of several parts, and its value or the bytes of its
// digest. ok is false if the text is not a part of a key.
func Read(part string) (text string, kind Kind, ok bool) {
	switch {
	case part == "" || part[0] != 0:
		return part, IsValue, true
	case part == Absent:
		return "", IsAbsent, true
	case part == NoAddr:
		return "", IsNoAddr, true
	case len(part) > len(marked) && part[:len(marked)] == marked && part[len(marked)] == 0:
		return part[len(marked):], IsValue, true
	case len(part) > len(digest) && part[:len(digest)] == digest:
		return part[len(digest):], IsDigest, true
	}
	return "", IsValue, false
}

// Split returns the parts of a key of several parts; it is the inverse of AppendSeveral and AppendPart.
func Split(k string) (parts []string, ok bool) {
	if len(k) < len(several) || k[:len(several)] != several {
		return nil, false
	}
	for rest := k[len(several):]; rest != ""; {
		n, used := binary.Uvarint([]byte(rest[:min(len(rest), binary.MaxVarintLen64)]))
		if used <= 0 || n > uint64(len(rest)-used) {
			return nil, false
		}
		parts = append(parts, rest[used:used+int(n)])
		rest = rest[used+int(n):]
	}
	return parts, true
}
