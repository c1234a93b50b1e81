package rulefile

import (
	"net/netip"

	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// file reads one file. Its decoder contains the errors since the last flush.
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

// flush passes the decoder's errors to the parser, and reports whether there were none.
func (f *file) flush(rule string) bool {
	faults, more := f.Faults()
	for _, fault := range faults {
		f.parser.fault(rules.Position{File: f.name, Line: fault.Line, Column: fault.Column}, rule, fault.Msg)
	}
	if more > 0 {
		f.parser.fault(f.at(f.root), rule, "more errors of the same kind")
	}
	f.Decoder = strictyaml.Decoder{Renamed: renamed}
	return len(faults) == 0
}

var fileFields = strictyaml.Fields[file]{
	"version":       (*file).version,
	"attributes":    (*file).declared,
	"lists":         (*file).declared,
	"defaults":      (*file).declared,
	"client_ip":     (*file).clientIP,
	"paths":         (*file).paths,
	"unmatched":     (*file).unmatched,
	"allow":         (*file).allow,
	"deny":          (*file).deny,
	"rules":         (*file).rules,
	"priorities":    (*file).priorities,
	"load_shedding": (*file).loadShedding,
}

var fileMoved = map[string]string{
	"descriptors": "a file in Envoy's format also needs domain: at the top",
	"rate_limit":  "write it in an entry of rules, as limit: 100/min",
	"rule":        "write rules: and a list below it",
	"priority":    "write priorities: and a list of {match: …, priority: low} below it",
	"limit":       "move it into an entry of rules, next to its name",
	"limits":      "move it into an entry of rules, next to its name",
	"match":       "move it into an entry of rules, next to its name",
	"name":        "write rules: at the top and the rules below it, one \"- name: …\" each",
}

// declarations reads the sections that the rules of all files may refer to.
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
		f.Decoder.Under = "defaults: "
		strictyaml.Decode(&f.Decoder, n, "defaults", defaultsFields, defaultsMoved, &f.defaults)
		f.Decoder.Under = ""
	}
	f.flush("")
}

// declared ignores a section that declarations has read.
func (f *file) declared(*strictyaml.Node) {}

// sections reads the other sections.
func (f *file) sections() {
	switch f.root.Kind {
	case strictyaml.Null: // an empty file, or only comments: a full disk leaves such files
		if !f.complete {
			return
		}
		f.Fault(f.root, "the file is empty: write rules: and a list of rules below it, or rules: [] for no rules")
	case strictyaml.Sequence:
		f.Fault(f.root, "the file is a list: write rules: at its top and the list below it")
	case strictyaml.Scalar:
		f.Fault(f.root, "the file is only the text %s: write rules: and a list of rules below it", f.root)
	default:
		strictyaml.Decode(&f.Decoder, f.root, "", fileFields, fileMoved, f)
	}
	f.flush("")
}

func (f *file) version(n *strictyaml.Node) {
	if n.Text != "1" {
		f.Fault(n, "version: is %s: write 1, the only supported version", n)
	}
}

// once reports whether no other file has the setting; if one has, it adds an error.
func (f *file) once(key string, n *strictyaml.Node) bool {
	if first, twice := f.onlyOnce[key]; twice {
		f.Fault(n, "%s: is already set at %v, for all files: remove one", key, first)
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
	if n.Kind == strictyaml.Sequence && len(n.Items) == 0 { // there are no proxies
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
			d.Fault(item, "%s: %s is not an address or a prefix: write one such as 192.0.2.1, 10.0.0.0/8 or 2001:db8::/32", what, item)
		case prefix != prefix.Masked():
			d.Fault(item, "%s: %s has bits set after the first %d: write %v, or the address alone",
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
	if n.Kind == strictyaml.Null { // without the key there would be no rules either
		f.Fault(n, "rules: is empty: write a list of rules, one \"- name: …\" each, or rules: [] for no rules")
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

// entries reads the entries of a list, each separately.
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
