package ruletest

import (
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/rules"
)

// File is one test file.
type File struct {
	Name  string     // name in messages
	Rules []RuleFile // relative to the file; none: all of its directory
	Start time.Time  // time at the start of each test
	Tests []Test
	Set   *rules.Set // the tested rules; set by Load
}

// RuleFile is a rule file that a test file names.
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

// Request is one request, or several equal ones at the same time, with the expected outcome. Either HTTP, Descriptors
// or Settle is set.
type Request struct {
	At          rules.Position
	Offset      time.Duration // since the test's start
	HTTP        *sample.HTTP
	Descriptors *sample.Descriptors
	Status      int           // of the response, for rules that charge by it
	ActualCost  *int64        // in the response, for rules with actual_cost
	Duration    time.Duration // until the response; the request is in flight for that long
	Times       int
	Reserve     int64    // estimate that is settled later, instead of the cost of the rules; 0: no reservation
	As          string   // name of the reservation
	Settle      []Actual // instead of a request: actual costs of reservations
	Expect      Expect
}

// Actual is the actual cost of a reservation.
type Actual struct {
	At   rules.Position
	Name string
	Cost int64
}

// Kind is the outcome of a request.
type Kind uint8

const (
	Allow     Kind = iota + 1 // a rule limits it, and it is allowed
	Deny                      // over a limit
	Reject                    // rejected before limits
	Unlimited                 // it is allowed and no rule limits it
)

var kindNames = [...]string{"", "allow", "deny", "reject", "unlimited"}

// String returns the name in test files.
func (k Kind) String() string { return kindNames[min(int(k), len(kindNames)-1)] }

// Expect is the expectation of a test for a request. Fields that are nil or empty are not checked.
type Expect struct {
	At   rules.Position
	Kind Kind // of all requests; 0: Allowed and Denied are their numbers
	// Allowed and Denied are the numbers of allowed and denied requests.
	Allowed, Denied int

	Rule       *Text
	Shadow     *Text
	Remaining  *Number
	Forgiven   *Number // of a settlement: the part that was not charged because of the maximum negative balance
	RetryAfter *Duration
	Delay      *Duration
}

// Text is a text with its position.
type Text struct {
	At   rules.Position
	Text string
}

// Number is an expected number, or several by rule.
type Number struct {
	At     rules.Position
	N      int64
	ByRule []RuleNumber // instead of N
}

// RuleNumber is the expected number of a rule.
type RuleNumber struct {
	At   rules.Position
	Rule string
	N    int64
}

// Duration is a duration with its position.
type Duration struct {
	At rules.Position
	D  time.Duration
}

// Bounds of a test file.
const (
	maxTimes    = 1_000_000 // of one request
	maxRequests = 100_000   // written in one file
	maxSends    = 5_000_000 // of one file, all times added
)

// DefaultStart is the default start of tests: a Thursday.
var DefaultStart = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
