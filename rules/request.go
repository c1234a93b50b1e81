package rules

import (
	"errors"
	"net/netip"
	"net/textproto"
	"strings"

	"github.com/sluiceproject/sluice/internal/match"
)

// Request is what a set looks at. Edges implement it: over an HTTP request, a call, a line of a log.
type Request interface {
	// Attribute returns the value of a field, and whether the request has it once, not at all or more than once.
	Attribute(f *Field) (value string, found Presence)
	// Addr is the client's address, or the zero Addr.
	Addr() netip.Addr
}

// Presence is how often a request has an attribute.
type Presence uint8

const (
	Absent    Presence = iota
	Present            // once
	Ambiguous          // more than once, or in spellings that applications may confuse
)

// Field is a part of a request that a rule asks for.
type Field struct {
	Kind FieldKind
	Name string // of a header in its canonical form; empty where the kind says it all
	// Variants are names that some applications take for that of the header: X_User for X-User. A request that has one
	// is ambiguous.
	Variants []string
}

// FieldKind is what kind of part of a request a [Field] is.
type FieldKind uint8

const (
	FieldMethod    FieldKind = iota
	FieldHost                // with or without a port
	FieldPath                // as sent: escaped and without the query
	FieldHeader              // by its canonical name
	FieldQuery               // a parameter of the query
	FieldCookie              // by name
	FieldClaim               // of a token that somebody has verified
	FieldBasicUser           // the user name of basic authentication
	FieldAttr                // what the program calls it
)

// Errors of [Set.Match]. The request is to be refused: it is not known how it counts.
var (
	// ErrAmbiguous is wrapped when a request gives an attribute that counts more than once, or so that applications may read it
	// differently.
	ErrAmbiguous = errors.New("rules: an attribute is given more than once or may be read differently")
	// ErrAttributeTooLong is wrapped when an attribute that counts is longer than 8 KiB.
	ErrAttributeTooLong = errors.New("rules: an attribute is too long")
	// ErrInvalidCost is wrapped when the attribute that holds the cost holds something else.
	ErrInvalidCost = errors.New("rules: the cost is not a whole number of at least 1")
)

// newField makes the field of a reference such as "header:X-User", or nil if it is none.
func newField(kind, name string) *Field {
	switch kind {
	case "method":
		return &Field{Kind: FieldMethod}
	case "host":
		return &Field{Kind: FieldHost}
	case "path":
		return &Field{Kind: FieldPath}
	case "basic_user":
		return &Field{Kind: FieldBasicUser}
	case "header":
		name = textproto.CanonicalMIMEHeaderKey(name)
		return &Field{Kind: FieldHeader, Name: name, Variants: underscored(name)}
	case "query":
		return &Field{Kind: FieldQuery, Name: name}
	case "cookie":
		return &Field{Kind: FieldCookie, Name: name}
	case "claim":
		return &Field{Kind: FieldClaim, Name: name}
	case "attr":
		return &Field{Kind: FieldAttr, Name: name}
	}
	return nil
}

func (f *Field) secret() bool {
	return f.Kind == FieldCookie || f.Kind == FieldHeader && match.IsCredentialHeader(f.Name)
}

// underscored lists the spellings of a header's name with some of its hyphens as underscores, in the form that
// net/http keeps them in.
func underscored(name string) []string {
	const most = 4 // hyphens; names with more have only the spelling with all of them replaced
	var hyphens []int
	for i := range len(name) {
		if name[i] == '-' {
			hyphens = append(hyphens, i)
		}
	}
	if len(hyphens) > most {
		return []string{textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "-", "_"))}
	}
	var all []string
	for mask := 1; mask < 1<<len(hyphens); mask++ {
		b := []byte(name)
		for bit, i := range hyphens {
			if mask&(1<<bit) != 0 {
				b[i] = '_'
			}
		}
		all = append(all, textproto.CanonicalMIMEHeaderKey(string(b)))
	}
	return all
}
