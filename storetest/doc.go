// Package storetest is the conformance suite that every store passes.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness{
//			Open: func(t testing.TB, clock *storetest.Clock) sluice.Store {
//				return sluice.Must(memstore.Open(memstore.Config{Now: clock.Now}))
//			},
//		})
//	}
//
// It asks for what package sluice promises, in four ways: transcripts, which are text files of calls and answers and
// the same for every store; checks in code, for what callers do at the same time, for clocks that step, for odd keys
// and for what went wrong in other limiters; histories made up at random and compared with a [Reference]; and
// porcupine, which looks for an order of concurrent calls that explains their answers.
//
// A store that promises less says so in its [Caps]: it is then held to what it does promise. With SLUICE_SOAK set the
// random parts run for minutes instead of seconds.
//
// # Transcripts
//
// A file in testdata is made of limits, of calls with their answers, of blank lines and of comments, which begin
// with #.
//
//	limit [NAME:] ALGORITHM COUNT/WINDOW [burst=N] [initial=N] [refill=interval] [align=first_hit] [calendar=day|week|month|year]
//	      [zone=ZONE] [over=N for=D] [rounding=nearest] [sub_windows=N] [charge_denied] [shadow]
//
// declares a rule, on one line, and change, written likewise, gives a known rule other numbers. A rule without a name
// is used by calls that name none. Calls follow each other line by line up to a line of dashes; below it, up to a blank
// line, stands what the store answers, line by line.
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
// TIME is a duration after the [ClockStart], a time of that day as 01:02:03, or a date and time as 2026-03-02T01:02:03Z. A
// KEY with spaces is quoted as in Go. What stands indented by a tab below decide is one call. A take with n is repeated
// and its answers are counted. The answer to a take is allow, deny or never, with what remains, what was granted if
// that is not the cost, and the times until a retry succeeds, until the key is as if never used, and until it may go
// ahead.
//
// go test ./storetest -update writes the reference's answers into the files. Read the difference: it is the contract.
package storetest
