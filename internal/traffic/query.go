package traffic

import (
	"net/url"
	"strings"

	"github.com/sluiceproject/sluice/rules"
)

// query is the value of a parameter, read as package httplimit does.
func query(raw, name string) (value string, found rules.Found) {
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" || strings.Contains(pair, ";") {
			continue
		}
		key, text, _ := strings.Cut(pair, "=")
		if k, err := url.QueryUnescape(key); err != nil || k != name {
			continue
		}
		v, err := url.QueryUnescape(text)
		switch {
		case err != nil:
		case found == rules.Present:
			return "", rules.Ambiguous
		default:
			value, found = v, rules.Present
		}
	}
	return value, found
}
