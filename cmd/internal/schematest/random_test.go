package schematest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// tree is a generated YAML document.
type tree struct {
	kind   treeKind
	text   string // text of a scalar, as written to the file
	fields []treeField
	items  []*tree
}

type treeField struct {
	key   string // as written to the file
	value *tree
}

type treeKind uint8

const (
	scalar treeKind = iota
	mapping
	list
)

func (n *tree) clone() *tree {
	c := &tree{kind: n.kind, text: n.text}
	for _, f := range n.fields {
		c.fields = append(c.fields, treeField{f.key, f.value.clone()})
	}
	for _, item := range n.items {
		c.items = append(c.items, item.clone())
	}
	return c
}

// yaml returns the document in block style, in which scalars need the fewest quotes.
func (n *tree) yaml() string {
	var b strings.Builder
	n.write(&b, 0)
	return strings.TrimLeft(b.String(), "\n ")
}

func (n *tree) write(b *strings.Builder, indent int) {
	switch {
	case n.kind == scalar:
		b.WriteString(" " + n.text + "\n")
	case n.kind == mapping && len(n.fields) == 0:
		b.WriteString(" {}\n")
	case n.kind == list && len(n.items) == 0:
		b.WriteString(" []\n")
	default:
		b.WriteString("\n")
	}
	for _, f := range n.fields {
		fmt.Fprintf(b, "%*s%s:", indent, "", f.key)
		f.value.write(b, indent+2)
	}
	for _, item := range n.items {
		fmt.Fprintf(b, "%*s-", indent, "")
		item.write(b, indent+2)
	}
}

// walk calls f for the node and all nodes below it, parents first.
func (n *tree) walk(f func(*tree)) {
	f(n)
	for _, field := range n.fields {
		field.value.walk(f)
	}
	for _, item := range n.items {
		item.walk(f)
	}
}

// value returns the document as a JSON validator sees it, or false if it is not YAML. known caches scalars.
func (n *tree) value(known map[string]any) (any, bool) {
	read := func(text string) (any, bool) {
		if value, ok := known[text]; ok {
			return value, value != errNotYAML
		}
		var document yaml.Node
		err := yaml.Unmarshal([]byte("v: "+text+"\n"), &document)
		known[text] = errNotYAML
		if err == nil && len(document.Content[0].Content) == 2 {
			known[text] = jsonValue(document.Content[0].Content[1])
		}
		return known[text], known[text] != errNotYAML
	}
	switch n.kind {
	case mapping:
		m, sound := make(map[string]any, len(n.fields)), true
		for _, f := range n.fields {
			value, ok := f.value.value(known)
			_, isKey := read(f.key)
			m[keyText(f.key)], sound = value, sound && ok && isKey
		}
		return m, sound
	case list:
		all, sound := make([]any, len(n.items)), true
		for i, item := range n.items {
			value, ok := item.value(known)
			all[i], sound = value, sound && ok
		}
		return all, sound
	}
	return read(n.text)
}

var errNotYAML any = errors.New("no YAML")

// keyText returns a key without its quotes; no key has escapes.
func keyText(key string) string { return strings.Trim(key, `"`) }

// generator writes random documents. The grammars of the formats are in other files.
type generator struct {
	*rand.Rand
	depth *int // depth of calls of maybe
}

// one returns a random scalar of texts.
func (g generator) one(texts ...string) *tree { return &tree{text: texts[g.IntN(len(texts))]} }

// some returns a list of one to three values.
func (g generator) some(value func() *tree) *tree {
	n := &tree{kind: list}
	for range 1 + g.IntN(3) {
		n.items = append(n.items, value())
	}
	return n
}

// oneOrSome returns a value or a list of values: the two forms of many keys.
func (g generator) oneOrSome(value func() *tree) *tree {
	if g.IntN(2) == 0 {
		return value()
	}
	return g.some(value)
}

// either returns the result of one of the functions.
func (g generator) either(values ...func() *tree) *tree { return values[g.IntN(len(values))]() }

// maybe returns nil more often than not, so that fields leaves the key out. Its values have more keys: sections are few
// and full.
func (g generator) maybe(value func() *tree) *tree {
	most := 8
	if *g.depth > 0 {
		most = 2
	}
	if g.IntN(most) > 0 {
		return nil
	}
	*g.depth++
	defer func() { *g.depth-- }()
	return value()
}

// maybeOne returns one of texts, or nil.
func (g generator) maybeOne(texts ...string) *tree {
	return g.maybe(func() *tree { return g.one(texts...) })
}

// fields returns a mapping of keys and values, without nil values.
func fields(keysAndValues ...any) *tree {
	n := &tree{kind: mapping}
	for i := 0; i < len(keysAndValues); i += 2 {
		if value := keysAndValues[i+1].(*tree); value != nil {
			n.fields = append(n.fields, treeField{keysAndValues[i].(string), value})
		}
	}
	return n
}

// oddScalars are values that are valid in some places and invalid in most.
var oddScalars = strings.Split(`0|1|-1|2|5|7|32|64|65|99|100|128|129|200|400|429|599|600|1000|1001|10000|10001|1000000|1000001|10000001`+
	`|4294967295|4294967296|1125899906842624|1125899906842625|9223372036854775807|9223372036854775808|18446744073709551616`+
	`|1.0|1.5|0.5|0.01|.5|5.|-0|-0.5|1e3|1e400|0x10|010|0o10|+1|1_000|10k|2M|10K|1__0|_1|"5"|"0"|"0.5"|.inf|.nan`+
	`|true|false|True|FALSE|yes|no|on|off|"true"|"false"|y|~|null|""|" "|a|b|"a b"|"a,b"|"a#b"|"a\tb"|"a\nb"|é|"é"|'a"b'|a\b`+
	`|0s|0ms|0h|0.0s|5s|90s|500ms|1h30m|3h2d|1d12h|1w2d3h|1.5h|.5s|5.s|-1s|+5s|10us|10µs|10μs|7d|366d|367d|4000d|99999999w|5min|5 s|1S|1ns|1d1d|1dh|1y`+
	`|100/min|5/s|5/fortnight|10 / 3 h|1k/S|5/MIN|0/s|10/0s|10/007s|1/500ms|5/month|5/2y|1_0/s|5/secs|5/ss|/s|5/|1/s, 2/s|5 concurrent|5 concurrent ttl 10s`+
	`|25%|0%|100%|100.00%|100.01%|12.5%|0.00%|001%|5.%|.5%|-5%|1000%|1001%|64KiB|1MiB|0B|1B|1TiB|999999999GiB|1234567890B|1 KiB|1kib`+
	`|allow|deny|reject|unlimited|low|critical|token_bucket|leaky_queue|fixed_window|sliding_window_counter|exact|lease|delay|queue|first_request|key|none|calendar|interval`+
	`|ip|method|path|user|nobody|basic_user|header:X-A|"header:"|jwt:sub|api_key:X-A|path:id|body:a|claim:a b`+
	`|/|/posts|/users/{id}|/files/**|posts|/a b|/a//b|/{|/a/**/b|/a?b|/a#b|"*"|/a/*/c|/%zz|/é`+
	`|https://app.example.com|http://127.0.0.1:9000|https://*.example.com|http://a:b@c|http://|h2c://a:1/|ftp://a|redis://a:6379|nats://a:4222`+
	`|127.0.0.1:8080|:80|:0|a:b|localhost:99999|unix:///run/a.sock|"unix:"|10.0.0.0/8|10.0.0.1/8|192.0.2.1|192.0.2.256|2001:db8::/32|fe80::1%eth0|::ffff:192.0.2.1|::/0|10.0.0.0/33`+
	`|2026-01-01|2026-01-01T00:00:00Z|2026-13-01|1969-01-01|2026-01-01 00:00:00|2026-01-01t00:00:00.5+01:00|2026-01-01T00:00:00,5Z`+
	`|X-A|X A|X:A|X(A|Host|api.example.com|"*.example.com"|a*b|GET /|POST /posts?a=1|"GET  /a"|GET posts|POST|G,T|UTC|Local|Europe/Paris|Mars/Base`+
	`|401|500-599|599-500|4xx|500 - 599|"401"|600-700|usage.total|a..b|.a|(|[|application/json|"{rule}"|"{nothing}"|text|'["a", b]'`+
	`|${SLUICE_TEST_NUMBER}|${SLUICE_TEST_WORD}|a${SLUICE_TEST_WORD}b|${SLUICE_TEST_NONE}|$$|a$b|"${SLUICE_TEST_NUMBER}"|${}`, "|")

// oddKeys are keys that are valid in some places and invalid in most.
var oddKeys = strings.Split(`a|nope|nmae|limt|X-A|X A|5|true|1.5|~|"5"|"true"|""|" "|"a b"|é|by|key|default|status|path|ip|header|name|match|limit|limits|rules|tests|requests|domain|host|servers|"*"|<<`, "|")

// mutation changes a copy of a document in one place and returns the changed or added value, or the value whose key it
// changed. It changes nothing if it does not apply to the place.
type mutation func(g generator, n *tree, donor *tree) *tree

// mutations change the given node.
var mutations = []mutation{
	oddValue, oddValue, oddValue, oddValue, oddValue, oddValue, respell, respell,
	func(g generator, n, _ *tree) *tree { // remove a key or an item
		switch {
		case len(n.fields) > 0:
			i := g.IntN(len(n.fields))
			n.fields = slices.Delete(n.fields, i, i+1)
		case len(n.items) > 0:
			i := g.IntN(len(n.items))
			n.items = slices.Delete(n.items, i, i+1)
		}
		return n
	},
	func(g generator, n, _ *tree) *tree { // an unknown key, or one of another place
		value := g.one(oddScalars...)
		if n.kind == mapping {
			n.fields = append(n.fields, treeField{oddKeys[g.IntN(len(oddKeys))], value})
		}
		return value
	},
	func(g generator, n, donor *tree) *tree { // a key from elsewhere, with its value
		var all []treeField
		donor.walk(func(n *tree) { all = append(all, n.fields...) })
		if n.kind != mapping || len(all) == 0 {
			return n
		}
		f := all[g.IntN(len(all))]
		value := f.value.clone()
		n.fields = append(n.fields, treeField{f.key, value})
		return value
	},
	func(g generator, n, donor *tree) *tree { // a value from elsewhere
		var all []*tree
		donor.walk(func(n *tree) { all = append(all, n) })
		*n = *all[g.IntN(len(all))].clone()
		return n
	},
	func(g generator, n, _ *tree) *tree { // another key for a value
		if len(n.fields) == 0 {
			return n
		}
		i := g.IntN(len(n.fields))
		n.fields[i].key = oddKeys[g.IntN(len(oddKeys))]
		return n.fields[i].value
	},
	func(g generator, n, _ *tree) *tree { // a key or an item twice
		switch {
		case len(n.fields) > 0:
			f := n.fields[g.IntN(len(n.fields))]
			n.fields = append(n.fields, treeField{f.key, f.value.clone()})
		case len(n.items) > 0:
			n.items = append(n.items, n.items[g.IntN(len(n.items))].clone())
		}
		return n
	},
	func(_ generator, n, _ *tree) *tree { // a list of one instead of a value, or the reverse
		if n.kind == list && len(n.items) > 0 {
			*n = *n.items[0]
			return n
		}
		c := *n
		*n = tree{kind: list, items: []*tree{&c}}
		return n
	},
	func(g generator, n, _ *tree) *tree { // many items
		if n.kind == list && len(n.items) > 0 {
			for len(n.items) < 10 {
				n.items = append(n.items, n.items[g.IntN(len(n.items))].clone())
			}
		}
		return n
	},
	otherKind,
}

// otherKind replaces a value by null, or by an empty text, list or mapping, or a list by a value.
func otherKind(g generator, n, _ *tree) *tree {
	*n = *g.either(
		func() *tree { return &tree{} },
		func() *tree { return &tree{text: "null"} },
		func() *tree { return &tree{text: `""`} },
		func() *tree { return &tree{kind: list} },
		func() *tree { return &tree{kind: list, items: []*tree{{kind: list}}} },
		func() *tree { return &tree{kind: mapping} },
		func() *tree { return fields("nope", g.one("5")) },
	)
	return n
}

func oddValue(g generator, n, _ *tree) *tree {
	*n = *g.one(oddScalars...)
	return n
}

// respell writes a scalar in another way.
func respell(g generator, n, _ *tree) *tree {
	if n.kind != scalar || n.text == "" {
		return oddValue(g, n, nil)
	}
	plain := strings.Trim(n.text, `"'`)
	switch g.IntN(8) {
	case 0:
		n.text = `"` + plain + `"`
	case 1:
		n.text = plain
	case 2:
		n.text = `"` + strings.ToUpper(plain) + `"`
	case 3:
		n.text = `" ` + plain + `"`
	case 4:
		n.text = `"` + plain + ` "`
	case 5:
		n.text = plain + "x"
	case 6:
		n.text = plain + "0"
	default:
		n.text = "0" + plain
	}
	return n
}
