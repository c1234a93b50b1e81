package checkapi

import (
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/rules"
)

// Bounds of a body; those of descriptors are [rls.Bounds].
const (
	MaxBody   = 64 << 10 // bytes
	MaxChecks = 100      // in a list
	MaxPairs  = 256      // headers, query parameters, cookies, claims and attributes of a check, together
	maxName   = 1 << 10  // bytes of a header's name and its like

	DefaultTTL = 5 * time.Minute
	MaxTTL     = time.Hour
	minTTL     = time.Second
)

// check is one question.
type check struct {
	request     request // what is known of a request to match, unless there is a domain
	domain      string
	descriptors []rules.Descriptor
	entries     []rules.Entry // of all descriptors, one after the other
	cost        int64         // negative: it gives back
	hasCost     bool          // else rules say what it costs
	peek        bool
	ttl         time.Duration // of a reservation
}

// clear empties the check and keeps its memory. Its strings are parts of a body that is gone.
func (c *check) clear() {
	clear(c.request.pairs)
	clear(c.descriptors)
	clear(c.entries)
	*c = check{request: request{pairs: c.request.pairs[:0]}, descriptors: c.descriptors[:0], entries: c.entries[:0]}
}

// parser reads bodies.
type parser struct {
	reader
	bounds rls.Bounds
	checks []check // reused
	isList bool    // they came as a list
}

// kind is what body is read, and so which fields there are.
type kind uint8

const (
	checkBody kind = iota
	listedCheck
	reserveBody
)

// Fields of a check, by their numbers in fieldsOf.
const (
	attributesField = iota
	domainField
	descriptorsField
	costField
	peekField // of a reservation: ttl
	checksField
)

var fieldsOf = [...][]string{
	checkBody:   {"attributes", "domain", "descriptors", "cost", "peek", "checks"},
	listedCheck: {"attributes", "domain", "descriptors", "cost", "peek"},
	reserveBody: {"attributes", "domain", "descriptors", "cost", "ttl"},
}

// parse reads a body of checks: one, or a list of them.
func (p *parser) parse(body []byte, k kind) *fault {
	p.checks, p.isList = p.checks[:0], false
	p.begin(body)
	f := p.check(p.another(), k)
	if f == nil {
		f = p.end()
	}
	return f
}

// another makes room for a check.
func (p *parser) another() *check {
	if len(p.checks) < cap(p.checks) {
		p.checks = p.checks[:len(p.checks)+1]
	} else {
		p.checks = append(p.checks, check{})
	}
	return &p.checks[len(p.checks)-1]
}

// check reads a check into c, which is empty.
func (p *parser) check(c *check, k kind) *fault {
	const want = `an object, such as {"attributes":{"method":"GET","path":"/"}}`
	seen, f := p.object(want, fieldsOf[k], func(i int, seen uint32) (f *fault) {
		if seen&(1<<checksField) != 0 && seen != 1<<checksField {
			return faultf("stands beside other fields: put these into the elements of the list").in("checks")
		}
		switch i {
		case attributesField:
			f = p.attributes(&c.request)
		case domainField:
			c.domain, f = p.domain()
		case descriptorsField:
			f = p.descriptors(c)
		case costField:
			c.hasCost = true
			c.cost, f = p.int(minCost(k), sluice.MaxCost)
		case peekField:
			if k == reserveBody {
				c.ttl, f = p.ttl()
			} else {
				c.peek, f = p.bool()
			}
		case checksField:
			f = p.listed() // which uses the room of c
		}
		return f.in(fieldsOf[k][i])
	})
	if f != nil {
		return f
	}
	return whole(c, k, seen)
}

// minCost is the smallest cost that a body may have: a check may give back.
func minCost(k kind) int64 {
	if k == reserveBody {
		return 0
	}
	return -sluice.MaxCost
}

// listed reads the list of checks.
func (p *parser) listed() *fault {
	p.checks, p.isList = p.checks[:0], true
	return p.list("a list of checks", "is empty: write at least one check", func(read int) *fault {
		if read == MaxChecks {
			bounds.CheckList.Reached()
			return faultf("has more than %d checks: send the others in another request", MaxChecks)
		}
		return p.check(p.another(), listedCheck).inElement(read)
	})
}

// whole tells what is missing in a check, or too much.
func whole(c *check, k kind, seen uint32) *fault {
	has := func(field int) bool { return seen&(1<<field) != 0 }
	attributes, domain, descriptors := has(attributesField), has(domainField), has(descriptorsField)
	switch {
	case has(checksField):
		return nil
	case attributes && (domain || descriptors):
		return faultf("a check has attributes, or domain and descriptors, not both: send two checks")
	case !attributes && !domain && !descriptors:
		return faultf(`there is nothing to check: write attributes, such as {"attributes":{"method":"GET","path":"/"}}, ` +
			`or domain and descriptors`)
	case domain != descriptors:
		return faultf("domain and descriptors go together: write both")
	case k == reserveBody && has(costField) && c.cost == 0:
		return faultf("is 0, which reserves nothing: write the estimate, at least 1").in("cost")
	case c.peek && c.cost < 0:
		return faultf("is negative, which gives back, and peek changes nothing: leave one of them out").in("cost")
	case c.ttl == 0:
		c.ttl = DefaultTTL
	}
	return nil
}

func (p *parser) domain() (string, *fault) {
	s, f := p.string("the name of a domain, in double quotes")
	switch {
	case f != nil:
		return "", f
	case s == "":
		return "", faultf("is empty: write the domain of a rule file")
	}
	return s, nil
}

// descriptors reads [[{"key":"k","value":"v"}]].
func (p *parser) descriptors(c *check) *fault {
	const want = `a list of descriptors, such as [[{"key":"user","value":"ada"}]]`
	f := p.list(want, "is empty: write at least one descriptor", func(read int) *fault {
		if read == p.bounds.Descriptors {
			bounds.RLSDescriptors.Reached()
			return faultf("has more than %d descriptors: send fewer, or raise %s", p.bounds.Descriptors, p.bounds.DescriptorsSetting)
		}
		from := len(c.entries)
		if f := p.descriptor(c); f != nil {
			return f.inElement(read)
		}
		c.descriptors = append(c.descriptors, rules.Descriptor{Cost: int64(len(c.entries) - from)})
		return nil
	})
	if f != nil {
		return f
	}
	from := 0
	for i := range c.descriptors { // only now, because entries may have moved while they were read
		n := int(c.descriptors[i].Cost)
		c.descriptors[i] = rules.Descriptor{Entries: c.entries[from : from+n : from+n]}
		from += n
	}
	return nil
}

func (p *parser) descriptor(c *check) *fault {
	const want = `a list of entries, such as [{"key":"user","value":"ada"}]`
	return p.list(want, "is empty: write at least one entry", func(read int) *fault {
		e, f := p.entry()
		if f != nil {
			return f.inElement(read)
		}
		if read > rls.MaxEntries { // so many that no rule reads them
			bounds.RLSEntries.Reached()
			return nil
		}
		c.entries = append(c.entries, e)
		return nil
	})
}

var entryFields = []string{"key", "value"}

func (p *parser) entry() (e rules.Entry, f *fault) {
	seen, f := p.object(`an entry, such as {"key":"user","value":"ada"}`, entryFields, func(i int, _ uint32) *fault {
		text, f := p.string("a string, in double quotes")
		switch {
		case f != nil:
			return f.in(entryFields[i])
		case i == 0 && text == "":
			return faultf("is empty: write the key of a rule").in(entryFields[i])
		case i == 0:
			e.Key = text
		default:
			e.Value = text
		}
		return nil
	})
	if f == nil && seen&1 == 0 {
		f = faultf(`the entry has no key: write {"key":"user","value":"ada"}`)
	}
	return e, f
}

// ttl reads how long a reservation is good for.
func (p *parser) ttl() (time.Duration, *fault) {
	const want = `a duration from 1s to 1h, such as "5m"`
	s, f := p.string(want)
	if f != nil {
		return 0, f
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < minTTL || d > MaxTTL {
		return 0, faultf("%q is not %s", shown(s), want)
	}
	return d, nil
}

// settleBody is what is sent to settle.
type settleBody struct {
	reservation string
	actual      int64
}

var settleFields = []string{"reservation", "actual"}

// parseSettle reads the body of a settlement.
func (p *parser) parseSettle(body []byte) (s settleBody, f *fault) {
	p.begin(body)
	const want = `an object, such as {"reservation":"…","actual":123}`
	seen, f := p.object(want, settleFields, func(i int, _ uint32) (f *fault) {
		if i == 0 {
			s.reservation, f = p.string("the reservation that /v1/reserve answered")
		} else {
			s.actual, f = p.int(0, sluice.MaxCost)
		}
		return f.in(settleFields[i])
	})
	switch {
	case f != nil:
		return s, f
	case seen != 3:
		return s, faultf("reservation and actual go together: write both; actual is what it really cost, and 0 cancels")
	}
	return s, p.end()
}
