package rulefile

import (
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// ruleDecoder is a rule while it is read, or the defaults of a file. What depends on other keys is kept until all of
// them are known.
type ruleDecoder struct {
	*file
	r                       rules.Rule
	algorithm               *sluice.Algorithm
	delay                   bool // on_limit: delay was said here
	limit, tiers, overrides *strictyaml.Node
}

var ruleFields = strictyaml.Fields[ruleDecoder]{
	"name": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.Name, _ = d.String(n, "name")
	},
	"description": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.Description, _ = d.String(n, "description")
	},
	"hidden": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.Hidden, _ = d.Bool(n, "hidden")
	},
	"enabled": func(d *ruleDecoder, n *strictyaml.Node) {
		enabled, ok := d.Bool(n, "enabled")
		d.r.Disabled = ok && !enabled
	},
	"match":      func(d *ruleDecoder, n *strictyaml.Node) { d.r.Match = d.match(n, "match") },
	"except":     (*ruleDecoder).except,
	"per":        (*ruleDecoder).per,
	"limit":      (*ruleDecoder).keepLimit,
	"limits":     (*ruleDecoder).keepLimit,
	"tiers":      func(d *ruleDecoder, n *strictyaml.Node) { d.tiers = n },
	"overrides":  func(d *ruleDecoder, n *strictyaml.Node) { d.overrides = n },
	"cost":       (*ruleDecoder).cost,
	"max_delay":  func(d *ruleDecoder, n *strictyaml.Node) { d.r.MaxDelay, _ = d.Duration(n, "max_delay") },
	"enforce":    (*ruleDecoder).enforce,
	"algorithm":  (*ruleDecoder).setAlgorithm,
	"on_failure": (*ruleDecoder).onFailure,
	"accuracy":   (*ruleDecoder).accuracy,
	"shadow":     (*ruleDecoder).shadow,
	"on_limit":   (*ruleDecoder).onLimit,
	"charge":     (*ruleDecoder).charge,
	"missing":    (*ruleDecoder).missing,
	"queue":      (*ruleDecoder).queue,
	"settle":     (*ruleDecoder).actualCost,
}

var ruleMoved = map[string]string{
	"rate_limit":        "that is Envoy's word: write limit: 100/min",
	"requests_per_unit": "that is Envoy's word: write limit: 100/min",
	"unit":              "that is Envoy's word: write it behind the number, limit: 100/min",
	"descriptors":       "that is Envoy's word: write match: for what a rule applies to and per: for whom it counts",
	"shadow_mode":       "that is Envoy's word: write shadow: true",
	"rate":              "write limit: 100/min",
	"burst":             "it belongs to the limit: write limit: {rate: 100/min, burst: 20}",
	"window":            "it belongs to the limit: write limit: {rate: 100, window: 1m}, or limit: 100/min",
	"key":               "whom a rule counts for is per: [user]",
	"keys":              "whom a rule counts for is per: [user]",
	"by":                "whom a rule counts for is per: [user]",
	"path":              "it belongs to match: write match: {path: /posts}",
	"method":            "it belongs to match: write match: {method: POST}",
	"host":              "it belongs to match: write match: {host: api.example.com}",
	"ip":                "it belongs to match, match: {ip: 192.0.2.1}; to count for each address write per: [ip]",
	"header":            "it belongs to match: write match: {header: {X-Plan: free}}",
	"disabled":          "write enabled: false",
	"mode":              "write shadow: true to report and not enforce",
	"dry_run":           "write shadow: true",
	"action":            "write on_limit: reject, queue or delay",
	"exclude":           "write except:",
	"priority":          "there is no order: a request needs the consent of all rules that match it; who goes first when not all can be served stands under priorities, at the top of the file",
}

// defaultsFields are what a file can say once for all of its rules.
var defaultsFields = strictyaml.Fields[ruleDecoder]{
	"algorithm":  (*ruleDecoder).setAlgorithm,
	"on_failure": (*ruleDecoder).onFailure,
	"accuracy":   (*ruleDecoder).accuracy,
	"shadow":     (*ruleDecoder).shadow,
	"on_limit":   (*ruleDecoder).onLimit,
	"charge":     (*ruleDecoder).charge,
	"missing":    (*ruleDecoder).missing,
}

var defaultsMoved = map[string]string{
	"limit": "a limit stands in a rule; defaults hold no numbers", "per": "it stands in a rule",
	"match": "it stands in a rule", "cost": "it stands in a rule", "enforce": "it stands in a rule",
	"max_delay": "it stands in a rule", "queue": "it stands in a rule",
	"settle": "it stands in a rule",
}

// decode reads a rule that begins with the file's defaults.
func (d *ruleDecoder) decode(n *strictyaml.Node) {
	byDefault := d.algorithm
	d.algorithm, d.delay = nil, false
	if n.Kind != strictyaml.Mapping {
		d.Fault(n, "rules: an entry is %s: write name: and limit: below each other, after a - and a space", n)
		return
	}
	if strictyaml.Decode(&d.Decoder, n, "", ruleFields, ruleMoved, d) {
		d.required(n)
	}
	context := limitContext{file: d.file, what: "limit"}
	switch {
	case d.algorithm != nil:
		context.algorithm = *d.algorithm
	case d.delay:
		context.algorithm = sluice.LeakyQueue
	case byDefault != nil:
		context.algorithm = *byDefault
	case d.r.OnLimit == rules.OnLimitDelay:
		context.algorithm = sluice.LeakyQueue
	}
	if d.limit != nil {
		d.r.Limits = context.limits(d.limit)
	}
	context.words = true
	if d.tiers != nil {
		d.readTiers(context)
	}
	if d.overrides != nil {
		d.readOverrides(context)
	}
}

// required reports what every rule has, unless it may be there under a misspelt key.
func (d *ruleDecoder) required(n *strictyaml.Node) {
	if n.Field("name") == nil {
		d.Fault(n, "the rule has no name: add one that says what is limited, such as name: posts-per-user")
	}
	if d.limit == nil {
		d.Fault(n, "there is no limit: write one, such as limit: 100/min")
	}
}

func (d *ruleDecoder) keepLimit(n *strictyaml.Node) {
	if d.limit != nil {
		d.Fault(n, "limit and limits are the same word: keep one, with a list of all limits")
	}
	d.limit = n
}

func (d *ruleDecoder) except(n *strictyaml.Node) {
	if n.Kind != strictyaml.Sequence {
		d.r.Except = append(d.r.Except, d.match(n, "except"))
		return
	}
	for _, item := range n.Items {
		d.r.Except = append(d.r.Except, d.match(item, "except"))
	}
}

func (d *ruleDecoder) per(n *strictyaml.Node) {
	items := []*strictyaml.Node{n}
	if n.Kind == strictyaml.Sequence {
		items = n.Items
	}
	for _, item := range items {
		if ref, ok := d.ref(item, "per"); ok {
			d.r.Per = append(d.r.Per, ref)
		}
	}
}

func (d *ruleDecoder) enforce(n *strictyaml.Node) {
	part, ok := d.Percent(n, "enforce", 100_00)
	if ok && part == 0 {
		d.Fault(n, "enforce: is 0%%: to enforce for nobody write shadow: true")
	}
	d.r.EnforceBasisPoints = part
}

// readAlgorithm reads an algorithm's name.
func (f *file) readAlgorithm(n *strictyaml.Node, what string) (sluice.Algorithm, bool) {
	names := make([]string, 0, 6)
	for a := sluice.TokenBucket; a <= sluice.SlidingWindowCounter; a++ {
		names = append(names, a.String())
	}
	i, ok := f.OneOf(n, what, names...)
	return sluice.Algorithm(i), ok
}

func (d *ruleDecoder) setAlgorithm(n *strictyaml.Node) {
	if a, ok := d.readAlgorithm(n, "algorithm"); ok {
		d.algorithm = &a
	}
}

func (d *ruleDecoder) onFailure(n *strictyaml.Node) { d.r.OnFailure = readFailMode(&d.Decoder, n) }

func (d *ruleDecoder) accuracy(n *strictyaml.Node) { d.r.Accuracy = readAccuracy(&d.Decoder, n) }

func readFailMode(d *strictyaml.Decoder, n *strictyaml.Node) sluice.FailMode {
	i, _ := d.OneOf(n, "on_failure", "local", "open", "closed")
	return [...]sluice.FailMode{sluice.FailLocal, sluice.FailOpen, sluice.FailClosed}[i]
}

func readAccuracy(d *strictyaml.Decoder, n *strictyaml.Node) sluice.Accuracy {
	i, _ := d.OneOf(n, "accuracy", "exact", "lease", "eventual")
	return [...]sluice.Accuracy{sluice.AccuracyExact, sluice.AccuracyLease, sluice.AccuracyEventual}[i]
}

func (d *ruleDecoder) shadow(n *strictyaml.Node) {
	d.r.Shadow, _ = d.Bool(n, "shadow")
}

func (d *ruleDecoder) onLimit(n *strictyaml.Node) {
	i, _ := d.OneOf(n, "on_limit", "reject", "queue", "delay")
	d.r.OnLimit = [...]rules.OnLimit{rules.OnLimitDeny, rules.OnLimitQueue, rules.OnLimitDelay}[i]
	d.delay = d.r.OnLimit == rules.OnLimitDelay
}

func (d *ruleDecoder) missing(n *strictyaml.Node) {
	i, _ := d.OneOf(n, "missing", "share", "skip", "deny")
	d.r.OnMissing = [...]rules.OnMissing{rules.MissingShare, rules.MissingSkip, rules.MissingReject}[i]
}

var chargeFields = strictyaml.Fields[ruleDecoder]{"status": (*ruleDecoder).chargeStatus}

func (d *ruleDecoder) charge(n *strictyaml.Node) {
	d.r.ChargeDenied, d.r.ChargeStatus = false, nil
	if n.Kind == strictyaml.Mapping {
		strictyaml.Decode(&d.Decoder, n, "charge", chargeFields, nil, d)
		return
	}
	if n.Kind == strictyaml.Scalar && (n.Text == "allowed" || n.Text == "always") {
		d.r.ChargeDenied = n.Text == "always"
		return
	}
	d.Fault(n, "charge: is %s: write allowed, always, or {status: [401, 500-599]} to charge by the answer", n)
}

func (d *ruleDecoder) chargeStatus(n *strictyaml.Node) {
	items, ok := d.Strings(n, "charge: status")
	if ok && len(items) == 0 {
		d.Fault(n, "charge: status: the list is empty: write a status, such as 401")
	}
	for _, item := range items {
		first, last, isRange := strings.Cut(item.Text, "-")
		from, err := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
		to := from
		var err2 error
		if isRange {
			to, err2 = strconv.ParseUint(strings.TrimSpace(last), 10, 16)
		}
		switch class := strings.ToLower(item.Text); {
		case item.Kind != strictyaml.Scalar || item.Text == "": // reported
		case len(class) == 3 && strings.HasSuffix(class, "xx"):
			d.Fault(item, "charge: status: is %s: write %c00-%c99", item, class[0], class[0])
		case err != nil || err2 != nil || from < 100 || to > 599 || from > to:
			d.Fault(item, "charge: status: is %s: write a status from 100 to 599, or a range such as 500-599", item)
		default:
			d.r.ChargeStatus = append(d.r.ChargeStatus, rules.StatusRange{From: int(from), To: int(to)})
		}
	}
}
