package attacks

import (
	"math/rand/v2"
	"strings"
)

// RuleFiles returns invalid rule files, by name, that must be rejected when they replace a rule file.
func RuleFiles() map[string]string {
	deep := strings.Repeat("[", 10_000)
	return map[string]string{
		"empty":                 "",
		"comment":               "# nothing\n",
		"null":                  "null\n",
		"document end":          "---\n...\n",
		"unknown per":           "rules: [{name: a, per: ipp, limit: 1/s, overrides: {x: 2/s}}]\n",
		"unknown key":           "rules: [{name: a, limt: 1/s}]\n",
		"no limit":              "rules: [{name: a}]\n",
		"bad rate":              "rules: [{name: a, limit: 1/parsec}]\n",
		"rate of 0":             "rules: [{name: a, limit: 0/s}]\n",
		"huge rate":             "rules: [{name: a, limit: 99999999999999999999/s}]\n",
		"a list":                "[rules]\n",
		"a text":                "rules\n",
		"not closed":            "rules: [{name: a, limit: 1/s\n",
		"twice":                 "rules: []\nrules: []\n",
		"names twice":           "rules: [{name: a, limit: 1/s}, {name: a, limit: 2/s}]\n",
		"merge":                 "a: &a {limit: 1/s}\nrules: [{<<: *a, name: a}]\n",
		"bomb":                  "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nrules: [*e,*e,*e,*e,*e,*e,*e]\n",
		"depth":                 "rules: " + deep + "\n",
		"NUL":                   "rules: [{name: \x00, limit: 1/s}]\n",
		"not UTF-8":             "rules: [{name: \xff, limit: 1/s}]\n",
		"UTF-16":                "\xff\xfer\x00u\x00l\x00e\x00s\x00:\x00\n\x00",
		"bad pattern":           "rules: [{name: a, match: {path: '/a/***/{'}, limit: 1/s}]\n",
		"bad address":           "rules: [{name: a, match: {ip: 300.0.0.1/64}, limit: 1/s}]\n",
		"half of a larger file": "rules:\n  - {name: a, limit: 1/s}\n  - {name: b, match: {pa",
	}
}

// Slip returns text with one typing error: a letter or line removed, doubled, changed or swapped with the next.
func Slip(text string, r *rand.Rand) string {
	if text == "" {
		return text
	}
	if r.IntN(3) == 0 {
		lines := strings.SplitAfter(text, "\n")
		i := r.IntN(len(lines))
		switch next := min(i+1, len(lines)-1); r.IntN(3) {
		case 0:
			lines[i] = ""
		case 1:
			lines[i] += lines[i]
		case 2:
			lines[i], lines[next] = lines[next], lines[i]
		}
		return strings.Join(lines, "")
	}
	b := []byte(text)
	i := r.IntN(len(b))
	switch next := min(i+1, len(b)-1); r.IntN(4) {
	case 0:
		return text[:i] + text[i+1:]
	case 1:
		return text[:i] + text[i:i+1] + text[i:]
	case 2:
		b[i], b[next] = b[next], b[i]
	case 3:
		b[i] = text[r.IntN(len(text))]
	}
	return string(b)
}
