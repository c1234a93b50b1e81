// Package rules turns requests into takes: which limits apply to a request, whom they count against, and what it costs.
//
// A [Set] is compiled once from a [Config], is immutable and is shared by all goroutines. [Set.Match] looks at a
// request's attributes and lists the takes to decide; it allocates nothing, and its cost does not grow with the number
// of rules that cannot match. The package knows neither protocols nor stores nor files: edges implement [Request], a
// [sluice.Limiter] decides the takes, and package rulefile reads a Config from YAML.
//
// # Two kinds of rules
//
// Rules of Sluice's own kind all apply: a request is allowed if every rule that matches it allows it, and it is charged
// under all of them or under none. Envoy's domains of descriptors keep the semantics of Envoy's rate limit service:
// each descriptor of a request finds at most one limit in its domain's tree. See [Set.MatchDescriptors].
//
// # Keys
//
// A rule counts separately for each combination of values of the attributes named in Per. The key is made of those
// values, each with its length, never joined by a separator that a value could contain. The rule's name is not part of
// the key because every store keeps it beside the key. Values of secret attributes (see [Attribute]) enter a key as a
// keyed digest only.
//
// A request that lacks an attribute counts in a bucket that all such requests share and that no value can name, so that
// leaving a header out is no way around a limit. One that gives it twice is refused ([ErrAmbiguous]): which of the two
// the application will believe is not known here.
package rules
