// Package envoyratelimit is the service of `sluice ratelimit`, which takes the place of envoyproxy/ratelimit: the same
// environment variables, rule files, answers, statistics and HTTP pages, on Sluice's stores.
//
// The store is used as a counter. Each limit of a request adds its hits to the count of its window in one atomic call,
// and the arithmetic of the reference then says which descriptors are over their limits. So a request that is refused
// counts too, as there, and a limit can be changed by the request itself.
//
// Where the reference is wrong, by a panic, a race or a leak, this package does the safe thing; the differences are
// listed in docs/migrate-from-envoy-ratelimit.md.
package envoyratelimit
