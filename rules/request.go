package rules

import (
	"errors"
	"net/netip"
	"net/textproto"
	"strings"

	"github.com/sluiceproject/sluice/internal/match"
)

// Request is a request to match. Edges implement it for an HTTP request, a call or a line of a log.
type Request interface {
	// Attribute returns the value of a field, and whether the request has it once, not at all or more than once.
	Attribute(f *Field) (value string, found Presence)
	// Addr returns the client's address, or the zero Addr.
	Addr() netip.Addr
}

// Presence is the number of times that a request has an attribute.
type Presence uint8

const (
	Absent    Presence = iota
	Present            // once
	Ambiguous          // more than once, or in spellings that applications may confuse
)

// Field is a part of a request that a rule reads.
type Field struct {
	Kind FieldKind
	Name string // a header in canonical form; empty if the kind needs no name
	// Variants are names that some applications read as the header: X_User for X-User. A request with one of them is
	// ambiguous.
	Variants []string
}

// FieldKind is the kind of a [Field].
type FieldKind uint8

const (
	FieldMethod    FieldKind = iota
	FieldHost                // with or without a port
	FieldPath                // as sent: escaped and without the query
	FieldHeader              // by its canonical name
	FieldQuery               // a parameter of the query
	FieldCookie              // by name
	FieldClaim               // of a verified token
	FieldBasicUser           // the user name of basic authentication
	FieldAttr                // by the name that the program uses
)

// Errors of [Set.Match]. The request must be rejected, because its key or cost cannot be determined.
var (
	// ErrAmbiguous is wrapped if a request has an attribute of a key or a condition more than once, or in a form that
	// applications may read differently.
	ErrAmbiguous = errors.New("rules: an attribute is given more than once or may be read differently")
	// ErrAttributeTooLong is wrapped if such an attribute is longer than 8 KiB.
	ErrAttributeTooLong = errors.New("rules: an attribute is too long")
	// ErrInvalidCost is wrapped if the attribute with the cost is not a whole number of at least 1.
	ErrInvalidCost = errors.New("rules: the cost is not a whole number of at least 1")
)

// newField returns the field of a reference such as "header:X-User", or nil if it is not one.
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

// underscored returns the spellings of a header's name with some of its hyphens as underscores, in canonical form.
func underscored(name string) []string {
	const most = 4 // hyphens; longer names have only the spelling with all of them replaced
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
