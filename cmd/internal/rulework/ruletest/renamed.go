package ruletest

// renamed maps old keys and values of test files to their new names, as [strictyaml.Decoder] reads it. At the first release,
// delete this file, its test and strictyaml.Decoder.Renamed.
var renamed = map[string]string{
	"send":           "request",
	"takes":          "duration",
	"settled":        "actual_cost",
	"expect: refuse": "reject",
}
