// Package storetest is the conformance suite for implementations of [sluice.Store].
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness{
//			Open: func(t testing.TB, clock *storetest.Clock) sluice.Store {
//				return sluice.Must(memstore.Open(memstore.Config{Now: clock.Now}))
//			},
//		})
//	}
//
// It checks the guarantees of package sluice in four ways:
//
//   - transcripts: text files of calls and their results, the same for every store
//   - checks in Go: concurrent callers, clocks that step, unusual keys, and known defects of other rate limiters
//   - random histories, compared with a [Reference]
//   - linearizability: porcupine searches for an order of concurrent calls that explains their results
//
// A store with weaker guarantees declares them in its [Caps], and is checked for the rest. With the environment
// variable SLUICE_SOAK set, the random parts run for minutes instead of seconds.
//
// # Transcripts
//
// A file in testdata consists of limits, calls with their results, blank lines, and comments, which start with #.
//
//	limit [NAME:] ALGORITHM COUNT/WINDOW [burst=N] [initial=N] [refill=interval] [align=first_hit] [calendar=day|week|month|year]
//	      [zone=ZONE] [over=N for=D] [rounding=nearest] [sub_windows=N] [charge_denied] [shadow]
//
// declares a rule, on one line. change, with the same syntax, changes the limit of an existing rule. A rule without a
// name is used by calls that name no rule. Calls follow each other line by line up to a line of dashes. Below it, up to
// a blank line, are their results, line by line.
//
//	at TIME take KEY [rule=NAME] [cost=N] [min=N] [maxdelay=D] [id=N] [n=TIMES | as=LABEL]
//	at TIME peek KEY [rule=NAME] [maxdelay=D]
//	at TIME giveback LABEL [cost=N] [id=N]
//	at TIME settle LABEL more=N
//	at TIME reset KEY [rule=NAME]
//	at TIME block KEY [rule=NAME] for=D
//	at TIME decide
//		take …
//	----
//
// TIME is a duration after [ClockStart], a time of that day such as 01:02:03, or a date and time such as
// 2026-03-02T01:02:03Z. A KEY with spaces is quoted as in Go. The lines below decide, indented by a tab, are one call.
// A take with n is repeated, and its results are counted. The result of a take is allow, deny or never (the cost
// exceeds the limit). It is followed by the remaining quota, the granted cost if that is not the requested one, and the
// times until a retry is allowed, until the key is fully reset, and until a delayed take is released.
//
// go test ./storetest -update writes the results of the reference into the files. Review the diff: it is a change of
// the contract.
package storetest
