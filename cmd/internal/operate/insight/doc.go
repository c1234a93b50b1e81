// Package insight judges live rules: is a limit too strict, too loose, or right, and what should change?
//
// A [Recorder] sees every decision of every rule. It keeps sketches of a fixed size per limit, and judges from them:
//
//   - decisions by minute for two hours, and by ten minutes for a day;
//   - distinct keys, and distinct denied keys (HyperLogLog, ± 6.5 %);
//   - the behaviour of some keys: 40 with the smallest hashes, which are a uniform sample and are followed from their first
//     request on; 40 denied keys, likewise, from their first denial on; the 12 keys with the most denials and the 8 that used up
//     the most fixed windows (space saving).
//
// Of each followed key it records its demand and pace, its retries before and after RetryAfter, how it uses windows, and the room
// that it would have needed at 1, 1.5, 2, 4 and 8 times the rate. For that, each request is also decided by buckets of these rates
// with a thousandfold burst, by package step: the busiest moment of such a bucket is the smallest burst that would have denied
// nothing. Nothing is stored per request.
//
// # Verdicts
//
// They are tried in this order. Load is the demand of a key relative to the rate of its limit, while it is active: pauses count
// for 4 windows at most.
//
//   - never_near: no key ever used more than half of the limit, in 1,000 decisions, in 100 within an hour, or in a day.
//   - no_verdict: fewer than 1,000 decisions in the last day.
//   - With at least 20 denials: if few keys (5 % at most) have half of the denials, and three times what would be their even
//     share, the rule is not loosened, whatever they do. They are a boundary_doubling if they double windows; a shared_key if
//     they look like crowds; else one_abuser.
//   - one_abuser, too, if keys with a load of 10 that ignore RetryAfter have half of the denials, however many they are; or,
//     while at most a tenth of all keys is denied, keys with a load of 3 and five times the median.
//   - Denials matter if 2 % of the keys and 0.5 % of the decisions are denied, or 5 % of the decisions. Then: bursts_denied if
//     80 % of them fall into a fifth of the time and hardly any elsewhere (a flash sale), or if the denied keys stay under the
//     rate in the long run; too_strict if they do not.
//   - boundary_doubling: a key used up at least 1.4 limits around the boundary of a fixed window, three times, and so in half of
//     the windows that it used up.
//   - too_loose: the upstream shed requests, and the rule denied none.
//   - fits: none of these.
//
// A crowd behind one key and a single program differ in three ways. A program's gaps are even: at least 30 % of consecutive gaps
// are within a quarter of each other; of random ones, 11 % are. Honest clients come back when RetryAfter ends: at least 1.2 times,
// and four standard deviations, more requests come in that moment than at other times. And the demand of a crowd is bounded by
// the number of people at one address; without the second sign, it is assumed to be at most 5 limits, or 3 if enough
// denials show that no client waits. A crowd whose members never retry, and a program that sends at random, look alike.
//
// # Cost
//
// Recording allocates nothing once the followed keys are found, and takes no lock for allowed decisions about other keys. See
// docs/verdicts.md for times and bytes.
package insight
