package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluiceproject/sluice"
)

// descriptorName returns the name of a rule of a domain: "messaging/message_type=marketing". Text that could be read as
// punctuation is quoted, so that rules with different paths never have the same name.
func descriptorName(domain string, path []*domainNode) string {
	var b strings.Builder
	b.WriteString(nameToken(domain))
	for _, n := range path {
		b.WriteByte('/')
		b.WriteString(n.rule.label())
	}
	return b.String()
}

// label returns the rule as written in names and explanations: "key=value", or "key" if it is for any value.
func (r *DescriptorRule) label() string {
	if r.Value == "" {
		return nameToken(r.Key)
	}
	return nameToken(r.Key) + "=" + nameToken(r.Value)
}

// nameToken quotes a text unless it is plain. Plain texts contain no escapes, quotes, spaces or punctuation of names.
func nameToken(s string) string {
	quoted := strconv.Quote(s)
	if s == "" || strings.ContainsAny(s, " /=#~") || len(quoted) != len(s)+2 {
		return quoted
	}
	return s
}

// shortName shortens a name that is too long for a rule and replaces the rest by a digest of the whole name. The result
// cannot be confused with a name that was not shortened: there a ~ is inside quotes, and so not followed by hexadecimal
// digits alone.
func shortName(name string) string {
	if len(name) <= sluice.MaxRuleName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:16])
	keep := sluice.MaxRuleName - len("~") - len(digest)
	for !utf8.RuneStart(name[keep]) {
		keep--
	}
	return name[:keep] + "~" + digest
}
