package rulefile

import (
	"net/netip"

	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// file is one file while it is read. Its decoder holds the faults found since the last flush.
type file struct {
	*parser
	strictyaml.Decoder
	name     string
	root     *strictyaml.Node
	defaults ruleDecoder
}

func (f *file) at(n *strictyaml.Node) rules.Position {
	return rules.Position{File: f.name, Line: n.Line, Column: n.Column}
}

// flush hands the faults found so far to the parser, and tells whether there were none.
func (f *file) flush(rule string) bool {
	faults, more := f.Faults()
	for _, fault := range faults {
		f.parser.fault(rules.Position{File: f.name, Line: fault.Line, Column: fault.Column}, rule, fault.Msg)
	}
	if more > 0 {
		f.parser.fault(f.at(f.root), rule, "and more of the same")
	}
	f.Decoder = strictyaml.Decoder{}
	return len(faults) == 0
}

var fileFields = strictyaml.Fields[file]{
	"version":    (*file).version,
	"attributes": (*file).declared,
	"lists":      (*file).declared,
	"defaults":   (*file).declared,
	"client_ip":  (*file).clientIP,
	"paths":      (*file).paths,
	"unmatched":  (*file).unmatched,
	"allow":      (*file).allow,
	"deny":       (*file).deny,
	"rules":      (*file).rules,
	"priorities": (*file).priorities,
	"shed":       (*file).loadShedding,
}

var fileMoved = map[string]string{
	"descriptors": "a file in Envoy's format has a domain at its top as well",
	"rate_limit":  "a limit stands in an entry of rules, as limit: 100/min",
	"rule":        "write rules: with a list below it",
	"priority":    "write priorities: with a list of {match: …, priority: low} below it",
	"limit":       "a limit stands in an entry of rules, beside its name",
	"limits":      "limits stand in entries of rules, beside their name",
	"match":       "a match stands in an entry of rules, beside its name",
	"name":        "write rules: at the top and each rule below it, after a - and a space",
}

// declarations reads what the rules of all files may refer to.
func (f *file) declarations() {
	if f.root.Kind != strictyaml.Mapping {
		return
	}
	f.partialAttributes = f.partialAttributes || f.root.MayLose("attributes")
	f.partialLists = f.partialLists || f.root.MayLose("lists")
	if n := f.root.Field("attributes"); n != nil {
		f.attributeSection(n)
	}
	if n := f.root.Field("lists"); n != nil {
		f.listSection(n)
	}
	f.defaults.file = f
	if n := f.root.Field("defaults"); n != nil {
		strictyaml.Decode(&f.Decoder, n, "defaults", defaultsFields, defaultsMoved, &f.defaults)
	}
	f.flush("")
}

// declared is for sections that declarations has read.
func (f *file) declared(*strictyaml.Node) {}

// sections reads everything else.
func (f *file) sections() {
	switch f.root.Kind {
	case strictyaml.Null: // an empty file, or comments only: what a full disk leaves of one
		if !f.complete {
			return
		}
		f.Fault(f.root, "the file is empty: write rules: and a list of rules below it, or rules: [] if there are to be none")
	case strictyaml.Sequence:
		f.Fault(f.root, "the file is a list: write rules: at its top and the list below it")
	case strictyaml.Scalar:
		f.Fault(f.root, "the file is just the text %s: write rules: and a list of rules below it", f.root)
	default:
		strictyaml.Decode(&f.Decoder, f.root, "", fileFields, fileMoved, f)
	}
	f.flush("")
}

func (f *file) version(n *strictyaml.Node) {
	if n.Text != "1" {
		f.Fault(n, "version: is %s: this program knows version 1 only", n)
	}
}

// once reports a setting that a second file has too.
func (f *file) once(key string, n *strictyaml.Node) bool {
	if first, twice := f.onlyOnce[key]; twice {
		f.Fault(n, "%s: is set at %v already, and counts for all files: remove one", key, first)
		return false
	}
	f.onlyOnce[key] = f.at(n)
	return true
}

func (f *file) paths(n *strictyaml.Node) {
	if f.once("paths", n) {
		strictyaml.Decode(&f.Decoder, n, "paths", pathsFields, nil, f)
	}
}

var pathsFields = strictyaml.Fields[file]{
	"ignore_case": func(f *file, n *strictyaml.Node) {
		f.cfg.IgnorePathCase, _ = f.Bool(n, "paths: ignore_case")
	},
}

func (f *file) unmatched(n *strictyaml.Node) {
	if !f.once("unmatched", n) {
		return
	}
	if i, ok := f.OneOf(n, "unmatched", "allow", "deny"); ok {
		f.cfg.Unmatched = [...]rules.Unmatched{rules.UnmatchedAllow, rules.UnmatchedDeny}[i]
	}
}

type clientIPDecoder struct {
	*file
	ip rules.ClientIP
}

var clientIPFields = strictyaml.Fields[clientIPDecoder]{
	"trusted_proxies": (*clientIPDecoder).trustedProxies,
	"header": func(d *clientIPDecoder, n *strictyaml.Node) {
		d.ip.Header, _ = d.headerName(n, "client_ip: header")
	},
	"hops": func(d *clientIPDecoder, n *strictyaml.Node) {
		hops, _ := d.Int(n, "client_ip: hops", 1, 64)
		d.ip.ProxyHops = int(hops)
	},
	"ipv6_prefix": func(d *clientIPDecoder, n *strictyaml.Node) {
		bits, _ := d.Int(n, "client_ip: ipv6_prefix", 32, 128)
		d.ip.IPv6Prefix = int(bits)
	},
}

func (f *file) clientIP(n *strictyaml.Node) {
	f.flush("")
	d := &clientIPDecoder{file: f, ip: rules.ClientIP{Pos: f.at(n)}}
	if !f.once("client_ip", n) {
		return
	}
	strictyaml.Decode(&f.Decoder, n, "client_ip", clientIPFields, map[string]string{
		"trusted_proxy": "write trusted_proxies: and a list", "proxies": "write trusted_proxies: and a list",
	}, d)
	if f.flush("") {
		f.cfg.ClientIP = d.ip
	}
}

func (d *clientIPDecoder) trustedProxies(n *strictyaml.Node) {
	if n.Kind == strictyaml.Sequence && len(n.Items) == 0 { // says that there are none
		return
	}
	const what = "client_ip: trusted_proxies"
	items, _ := d.Strings(n, what)
	for _, item := range items {
		if item.Kind != strictyaml.Scalar || item.Text == "" {
			continue
		}
		prefix, err := parsePrefix(item.Text)
		switch {
		case err != nil:
			d.Fault(item, "%s: %s is not an address or a prefix: write 192.0.2.1, 10.0.0.0/8 or 2001:db8::/32", what, item)
		case prefix != prefix.Masked():
			d.Fault(item, "%s: %s has bits behind the slash's %d: write %v, or the address alone",
				what, item, prefix.Bits(), prefix.Masked())
		default:
			d.ip.TrustedProxies = append(d.ip.TrustedProxies, prefix)
		}
	}
}

// parsePrefix reads an address or a prefix. IPv4 written as IPv6 is IPv4.
func parsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if addr, addrErr := netip.ParseAddr(text); addrErr == nil && addr.Zone() == "" {
		prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	if err == nil && prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix, err
}

func (f *file) allow(n *strictyaml.Node) { f.matchList(n, "allow", &f.cfg.AllowList) }

func (f *file) deny(n *strictyaml.Node) { f.matchList(n, "deny", &f.cfg.DenyList) }

func (f *file) matchList(n *strictyaml.Node, what string, into *[]rules.Match) {
	f.entries(n, what, func(item *strictyaml.Node) {
		if m := f.match(item, what); !emptied(m, item) {
			*into = append(*into, m)
		}
		f.flush("")
	})
}

func (f *file) rules(n *strictyaml.Node) {
	f.saysNone = f.saysNone || n.Kind == strictyaml.Sequence && len(n.Items) == 0
	if n.Kind == strictyaml.Null { // without it there would be no rules either
		f.Fault(n, "rules: is empty: write a list of rules, each after a - and a space, or rules: [] if there are to be none")
		return
	}
	f.entries(n, "rules", func(item *strictyaml.Node) {
		d := f.defaults // a copy
		d.r.Pos = f.at(item)
		f.reading.at = d.r.Pos
		if name := item.Field("name"); name != nil {
			f.reading.rule = name.Text
		}
		d.decode(item)
		f.reading.rule = ""
		if f.flush(d.r.Name) && len(d.broken) == 0 && item.Whole() {
			f.cfg.Rules = append(f.cfg.Rules, d.r)
		} else if item.Kind == strictyaml.Mapping {
			f.cfg.Rules = append(f.cfg.Rules, d.reduced())
		}
	})
}

// entries reads the entries of a list, each for itself.
func (f *file) entries(n *strictyaml.Node, what string, read func(*strictyaml.Node)) {
	items, ok := f.Sequence(n, what)
	if !ok {
		return
	}
	for _, item := range items {
		if f.flush(""); f.tooMany() {
			break
		}
		read(item)
	}
}
