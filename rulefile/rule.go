package rulefile

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/internal/suggest"
	"github.com/sluiceproject/sluice/rules"
)

// ruleDecoder reads a rule, or the defaults of a file. Values that depend on other keys are stored until all keys are
// read.
type ruleDecoder struct {
	*file
	r                       rules.Rule
	algorithm               *sluice.Algorithm
	delay                   bool // the rule itself has on_limit: delay
	limit, tiers, overrides *strictyaml.Node

	broken    []string // keys with errors
	node      *strictyaml.Node
	uncertain bool // the algorithm of limits without their own is unknown
}

// noting wraps the fields of a rule so that keys with errors are recorded in broken.
func noting(fields strictyaml.Fields[ruleDecoder]) strictyaml.Fields[ruleDecoder] {
	all := make(strictyaml.Fields[ruleDecoder], len(fields))
	for key, read := range fields {
		all[key] = func(d *ruleDecoder, n *strictyaml.Node) {
			before := d.Count()
			if read(d, n); d.Count() > before {
				d.broken = append(d.broken, key)
			}
		}
	}
	return all
}

// note records a key of the rule if there are more errors than before.
func (d *ruleDecoder) note(key string, before int) {
	if d.Count() > before {
		d.broken = append(d.broken, key)
	}
}

// noteMissing records keys of the rule that are lost, and those that unknown keys probably stand for.
func (d *ruleDecoder) noteMissing(n *strictyaml.Node) {
	d.broken = append(d.broken, n.Lost...)
	d.node = n
	keys := ruleFields.Keys()
	for _, field := range n.Fields {
		key := field.Key.Text
		if ruleFields[key] != nil {
			continue
		}
		if ruleMoved[key] != "" { // it belongs to one of these
			d.broken = append(d.broken, "limit", "match", "per", "algorithm", "on_limit")
		} else if best := suggest.Closest(key, keys); best != "" {
			d.broken = append(d.broken, best)
		}
	}
}

// breaks reports whether one of some keys of the rule has an error, in the rule or in the defaults that it uses.
func (d *ruleDecoder) breaks(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		return slices.Contains(d.broken, key) || d.node.MayLose(key) && d.node.Field(key) == nil
	})
}

// defaultsFields are the keys of defaults.
var defaultsFields = noting(strictyaml.Fields[ruleDecoder]{
	"algorithm":  (*ruleDecoder).setAlgorithm,
	"on_failure": (*ruleDecoder).onFailure,
	"accuracy":   (*ruleDecoder).accuracy,
	"shadow":     (*ruleDecoder).shadow,
	"on_limit":   (*ruleDecoder).onLimit,
	"charge":     (*ruleDecoder).charge,
	"on_missing": (*ruleDecoder).onMissing,
})

// ruleFields are the keys of a rule, including those of defaults.
var ruleFields = defaultsFields.With(noting(strictyaml.Fields[ruleDecoder]{
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
	"match":       func(d *ruleDecoder, n *strictyaml.Node) { d.r.Match = d.match(n, "match") },
	"except":      (*ruleDecoder).except,
	"per":         (*ruleDecoder).per,
	"limit":       (*ruleDecoder).keepLimit,
	"limits":      (*ruleDecoder).keepLimit,
	"tiers":       func(d *ruleDecoder, n *strictyaml.Node) { d.tiers = n },
	"overrides":   func(d *ruleDecoder, n *strictyaml.Node) { d.overrides = n },
	"cost":        (*ruleDecoder).cost,
	"max_delay":   func(d *ruleDecoder, n *strictyaml.Node) { d.r.MaxDelay, _ = d.Duration(n, "max_delay") },
	"enforce":     (*ruleDecoder).enforce,
	"queue":       (*ruleDecoder).queue,
	"actual_cost": (*ruleDecoder).actualCost,
	"denial":      (*ruleDecoder).denial,
}))

var ruleMoved = map[string]string{
	"rate_limit":        "Envoy's key: write limit: 100/min",
	"requests_per_unit": "Envoy's key: write limit: 100/min",
	"unit":              "Envoy's key: write the unit after the number, limit: 100/min",
	"descriptors":       "Envoy's key: write match: for the matched requests and per: for the key",
	"shadow_mode":       "Envoy's key: write shadow: true",
	"rate":              "write limit: 100/min",
	"burst":             "move it into the limit: {rate: 100/min, burst: 20}",
	"window":            "move it into the limit: {rate: 100, window: 1m}, or write limit: 100/min",
	"key":               "write per: [user]",
	"keys":              "write per: [user]",
	"by":                "write per: [user]",
	"path":              "move it into match: {path: /posts}",
	"method":            "move it into match: {method: POST}",
	"host":              "move it into match: {host: api.example.com}",
	"ip":                "move it into match: {ip: 192.0.2.1}; to count per address write per: [ip]",
	"header":            "move it into match: {header: {X-Plan: free}}",
	"disabled":          "write enabled: false",
	"mode":              "write shadow: true to report without denying",
	"dry_run":           "write shadow: true",
	"action":            "write on_limit: deny, queue or delay",
	"exclude":           "write except:",
	"priority":          "rules have no order, because all matching rules must allow a request; for load shedding write priorities: at the top of the file",
}

var defaultsMoved = map[string]string{
	"limit": "move it into a rule", "per": "move it into a rule",
	"match": "move it into a rule", "cost": "move it into a rule", "enforce": "move it into a rule",
	"max_delay": "move it into a rule", "queue": "move it into a rule",
	"actual_cost": "move it into a rule", "denial": "move it into a rule",
}

// decode reads a rule that starts with the file's defaults.
func (d *ruleDecoder) decode(n *strictyaml.Node) {
	byDefault := d.algorithm
	d.algorithm, d.delay = nil, false
	if n.Kind != strictyaml.Mapping {
		d.Fault(n, "rules: an entry is %s: write a mapping with name: and limit:", n)
		return
	}
	d.broken = slices.DeleteFunc(slices.Clone(d.broken), func(key string) bool { return n.Field(key) != nil })
	strictyaml.Decode(&d.Decoder, n, "", ruleFields, ruleMoved, d)
	d.noteMissing(n)
	d.required(n)
	d.uncertain = d.breaks("algorithm", "on_limit")
	context := limitContext{file: d.file, what: "limit", uncertain: d.uncertain}
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
	before := d.Count()
	if d.limit != nil {
		d.r.Limits = context.limits(d.limit)
		d.note("limit", before)
	}
	context.words = true
	if d.tiers != nil {
		d.readTiers(context)
	}
	if d.overrides != nil {
		d.readOverrides(context)
	}
}

// required reports missing required keys, unless a misspelt key may stand for one.
func (d *ruleDecoder) required(n *strictyaml.Node) {
	if n.Field("name") == nil && !d.breaks("name") {
		d.Fault(n, "the rule has no name: add one, such as name: posts-per-user")
	}
	if d.limit == nil && !d.breaks("limit", "limits") {
		d.Fault(n, "there is no limit: write one, such as limit: 100/min")
	}
}

func (d *ruleDecoder) keepLimit(n *strictyaml.Node) {
	if d.limit != nil {
		d.Fault(n, "limit and limits are the same key: keep one, with a list of all limits")
	}
	d.limit = n
}

func (d *ruleDecoder) except(n *strictyaml.Node) {
	items := []*strictyaml.Node{n}
	if n.Kind == strictyaml.Sequence {
		items = n.Items
	}
	for _, item := range items {
		if m := d.match(item, "except"); !emptied(m, item) {
			d.r.Except = append(d.r.Except, m)
		}
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
		d.Fault(n, "enforce: is 0%%: write shadow: true instead")
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
	i, _ := d.OneOf(n, "on_limit", "deny", "queue", "delay")
	d.r.OnLimit = [...]rules.OnLimit{rules.OnLimitDeny, rules.OnLimitQueue, rules.OnLimitDelay}[i]
	d.delay = d.r.OnLimit == rules.OnLimitDelay
}

func (d *ruleDecoder) onMissing(n *strictyaml.Node) {
	i, _ := d.OneOf(n, "on_missing", "share", "skip", "reject")
	d.r.OnMissing = [...]rules.OnMissing{rules.MissingShare, rules.MissingSkip, rules.MissingReject}[i]
}

var chargeFields = strictyaml.Fields[ruleDecoder]{"status": (*ruleDecoder).chargeStatus}

func (d *ruleDecoder) charge(n *strictyaml.Node) {
	d.r.ChargeDenied, d.r.ChargeStatus = false, nil
	if n.Kind == strictyaml.Mapping {
		if strictyaml.Decode(&d.Decoder, n, "charge", chargeFields, nil, d) && n.Lacks("status") {
			d.Fault(n, "charge: there is no status: write {status: [401, 500-599]} to charge by response status")
		}
		return
	}
	if n.Kind == strictyaml.Scalar && (n.Text == "allowed" || n.Text == "always") {
		d.r.ChargeDenied = n.Text == "always"
		return
	}
	d.Fault(n, "charge: is %s: write allowed, always, or {status: [401, 500-599]} to charge by response status", n)
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
		case err != nil || err2 != nil || strings.HasPrefix(strings.TrimSpace(first), "0") || strings.HasPrefix(strings.TrimSpace(last), "0") || from < 100 || to > 599 || from > to:
			d.Fault(item, "charge: status: is %s: write a status from 100 to 599, or a range such as 500-599", item)
		default:
			d.r.ChargeStatus = append(d.r.ChargeStatus, rules.StatusRange{From: int(from), To: int(to)})
		}
	}
}

var queueFields = strictyaml.Fields[ruleDecoder]{
	"order": func(d *ruleDecoder, n *strictyaml.Node) {
		i, _ := d.OneOf(n, "queue: order", "none", "key")
		d.r.Queue.Ordered = i == 1
	},
	"keep_headers": func(d *ruleDecoder, n *strictyaml.Node) {
		items, _ := d.Strings(n, "queue: keep_headers")
		for _, item := range items {
			if item.Kind != strictyaml.Scalar {
				continue // reported
			}
			if name, ok := d.headerName(item, "queue: keep_headers"); ok {
				d.r.Queue.KeepHeaders = append(d.r.Queue.KeepHeaders, name)
			}
		}
	},
	"max_attempts": func(d *ruleDecoder, n *strictyaml.Node) {
		attempts, _ := d.Int(n, "queue: max_attempts", 1, rules.MaxDeliveryAttempts)
		d.r.Queue.MaxAttempts = int(attempts)
	},
	"expires_after": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.Queue.ExpiresAfter, _ = d.Duration(n, "queue: expires_after")
	},
	"result_ttl": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.Queue.ResultTTL, _ = d.Duration(n, "queue: result_ttl")
	},
}

func (d *ruleDecoder) queue(n *strictyaml.Node) {
	d.r.Queue = rules.QueueOptions{Pos: d.at(n)}
	strictyaml.Decode(&d.Decoder, n, "queue", queueFields, nil, d)
}

var denialFields = strictyaml.Fields[ruleDecoder]{
	"status": func(d *ruleDecoder, n *strictyaml.Node) {
		status, _ := d.Int(n, "denial: status", 400, 599)
		d.r.Denial.Status = int(status)
	},
	"message": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.Denial.Message, _ = d.String(n, "denial: message")
	},
	"body": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.Denial.Body, _ = d.String(n, "denial: body")
	},
	"content_type": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.Denial.ContentType, _ = d.String(n, "denial: content_type")
	},
}

func (d *ruleDecoder) denial(n *strictyaml.Node) {
	d.r.Denial.Pos = d.at(n)
	strictyaml.Decode(&d.Decoder, n, "denial", denialFields, nil, d)
}

var actualCostFields = strictyaml.Fields[ruleDecoder]{
	"header": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.ActualCost.Header, _ = d.headerName(n, "actual_cost: header")
	},
	"json": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.ActualCost.JSON, _ = d.String(n, "actual_cost: json")
	},
	"default": func(d *ruleDecoder, n *strictyaml.Node) {
		if amount, ok := d.Int(n, "actual_cost: default", 0, sluice.MaxCost); ok {
			d.r.ActualCost.Default = &amount
		}
	},
	"strip_header": func(d *ruleDecoder, n *strictyaml.Node) {
		d.r.ActualCost.StripHeader, _ = d.Bool(n, "actual_cost: strip_header")
	},
}

func (d *ruleDecoder) actualCost(n *strictyaml.Node) {
	d.r.ActualCost = &rules.ActualCost{Pos: d.at(n)}
	if before := d.Count(); !strictyaml.Decode(&d.Decoder, n, "actual_cost", actualCostFields, nil, d) || d.Count() > before {
		d.r.ActualCost = nil // further errors would be consequences
	}
}
