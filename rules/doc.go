// Package rules turns requests into takes: the limits that apply to a request, their keys, and its cost.
//
// A [Set] is compiled once from a [Config], is immutable and is shared by all goroutines. [Set.Match] reads a request's
// attributes and returns the takes to decide; it allocates nothing, and its cost does not grow with the number of rules
// that cannot match. The package is independent of protocols, stores and files: edges implement [Request], a
// [sluice.Limiter] decides the takes, and package rulefile reads a Config from YAML.
//
// # Two kinds of rules
//
// Rules of Sluice's format all apply: a request is allowed if every rule that matches it allows it, and it is charged
// under all of them or under none. Envoy's domains of descriptors keep the semantics of Envoy's rate limit service:
// each descriptor of a request finds at most one limit in its domain's tree. See [Set.MatchDescriptors].
//
// # Keys
//
// A rule counts separately for each combination of values of the attributes in Per. The key consists of those values,
// each with its length; they are never joined by a separator that a value could contain. The rule's name is not part of
// the key, because every store keeps it next to the key. Values of secret attributes (see [Attribute]) enter a key only
// as a keyed digest.
//
// Requests without an attribute share a bucket that no value can name, so that omitting a header does not bypass a
// limit. A request with the attribute twice is rejected ([ErrAmbiguous]), because it is unknown which value the
// application uses.
package rules
