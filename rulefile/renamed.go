package rulefile

// renamed maps old keys and values of rule files to their new names, as [strictyaml.Decoder] reads it. At the first release,
// delete this file, its test and strictyaml.Decoder.Renamed.
var renamed = map[string]string{
	"shed":             "load_shedding",
	"in_flight":        "concurrency",
	"lower":            "lowercase",
	"missing":          "on_missing",
	"on_missing: deny": "reject",
	"on_limit: reject": "deny",
	"settle":           "actual_cost",
	"hide":             "strip_header",
	"keep":             "keep_headers",
	"attempts":         "max_attempts",
	"expires":          "expires_after",
	"results":          "result_ttl",
	"lease":            "permit_ttl",
	"over":             "soft_excess",
	"for":              "soft_period",
	"align: first_hit": "first_request",
}
