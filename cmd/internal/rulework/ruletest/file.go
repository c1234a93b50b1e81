package ruletest

import (
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/rules"
)

// File is one file of tests.
type File struct {
	Name  string     // as messages show it
	Rules []RuleFile // beside the file; none: all of its directory
	Start time.Time  // what the clock says at the beginning of each test
	Tests []Test
	Set   *rules.Set // what they are about; set by Load
}

// RuleFile is a rule file that a file of tests names.
type RuleFile struct {
	At   rules.Position
	Path string
}

// Test is a sequence of requests to an empty store.
type Test struct {
	At       rules.Position
	Name     string
	Requests []Request
}

// Request is one request, or several equal ones at the same time, and what is to become of it. Either HTTP, Descriptors or
// Settle is set.
type Request struct {
	At          rules.Position
	Offset      time.Duration // since the test's start
	HTTP        *sample.HTTP
	Descriptors *sample.Descriptors
	Status      int           // of the response, for rules that charge by it
	Settled     *int64        // what the response says that it has cost, for rules that settle
	Takes       time.Duration // until the response is there: how long the request is in flight
	Times       int
	Reserve     int64    // an estimate that is settled later, in place of what the rules say that it costs; 0: it is not
	As          string   // what the reservation is called
	Settle      []Actual // instead of a request: reservations and what they really cost
	Expect      Expect
}

// Actual is what a reservation really cost.
type Actual struct {
	At   rules.Position
	Name string
	Cost int64
}

// Kind is what becomes of a request.
type Kind uint8

const (
	Allow     Kind = iota + 1 // a rule limits it, and it passes
	Deny                      // over a limit
	Refuse                    // turned away before anything is counted
	Unlimited                 // it passes and no rule limits it
)

var kindNames = [...]string{"", "allow", "deny", "refuse", "unlimited"}

// String returns the word that test files use.
func (k Kind) String() string { return kindNames[min(int(k), len(kindNames)-1)] }

// Expect is what a test says about a request. Fields that are nil or empty say nothing.
type Expect struct {
	At   rules.Position
	Kind Kind // of all of the requests; 0: Allow and Deny count them
	// Allowed and Denied are how many of the requests pass and how many do not.
	Allowed, Denied int

	Rule       *Text
	Shadow     *Text
	Remaining  *Number
	Forgiven   *Number // of a settlement: what was not charged because of the cap on debt
	RetryAfter *Duration
	Delay      *Duration
}

// Text is a text at a place.
type Text struct {
	At   rules.Position
	Text string
}

// Number is what remains: of one rule, or of several by their names.
type Number struct {
	At     rules.Position
	N      int64
	ByRule []RuleNumber // instead of N
}

// RuleNumber is what remains of a rule.
type RuleNumber struct {
	At   rules.Position
	Rule string
	N    int64
}

// Duration is a duration at a place.
type Duration struct {
	At rules.Position
	D  time.Duration
}

// Bounds of a file of tests.
const (
	maxTimes    = 1_000_000 // of one request
	maxRequests = 100_000   // written in one file
	maxSends    = 5_000_000 // of one file, all times together
)

// DefaultStart is when tests begin that do not say: a Thursday.
var DefaultStart = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
