// Package envoyratelimit implements `sluice ratelimit`, a drop-in replacement for envoyproxy/ratelimit, called the reference
// below: it has the same environment variables, rule files, responses, statistics and HTTP pages, and uses Sluice's stores.
//
// The store is used as a counter. Each limit of a request adds its hits to the count of its window in one atomic call, and
// the arithmetic of the reference then determines the descriptors that are over their limits. So denied requests are
// counted too, as in the reference, and a request can override a limit.
//
// Where the reference panics, races or leaks, this package does not; the differences are listed in
// docs/envoy-compatibility.md.
package envoyratelimit
