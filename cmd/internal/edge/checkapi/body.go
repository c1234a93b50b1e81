package checkapi

import (
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/rules"
)

// Bounds of a body. The bounds of descriptors are [rls.Bounds].
const (
	MaxBody   = 64 << 10 // bytes
	MaxChecks = 100      // in a list
	MaxPairs  = 256      // headers, query parameters, cookies, claims and attributes of a check, together
	maxName   = 1 << 10  // bytes of the name of a header, query parameter, cookie, claim or attribute

	DefaultTTL = 5 * time.Minute
	MaxTTL     = time.Hour
	minTTL     = time.Second
)

// check is one check of a body.
type check struct {
	request     request // request to match, unless domain is set
	domain      string
	descriptors []rules.Descriptor
	entries     []rules.Entry // entries of all descriptors, concatenated
	cost        int64         // negative for a refund
	hasCost     bool          // if false, the rules set the cost
	peek        bool
	ttl         time.Duration // of a reservation
}

// clear resets the check and keeps its memory. It drops the strings, because they point into a body that is reused.
func (c *check) clear() {
	clear(c.request.pairs)
	clear(c.descriptors)
	clear(c.entries)
	*c = check{request: request{pairs: c.request.pairs[:0]}, descriptors: c.descriptors[:0], entries: c.entries[:0]}
}

// parser parses bodies.
type parser struct {
	reader
	bounds rls.Bounds
	checks []check // reused
	isList bool    // the body is a list of checks
}

// kind is the kind of a body, which determines its fields.
type kind uint8

const (
	checkBody kind = iota
	listedCheck
	reserveBody
)

// Indexes of fields in fieldsOf.
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

// parse parses a body with one check or a list of checks.
func (p *parser) parse(body []byte, k kind) *fault {
	p.checks, p.isList = p.checks[:0], false
	p.begin(body)
	f := p.check(p.another(), k)
	if f == nil {
		f = p.end()
	}
	return f
}

// another appends an empty check, in reused memory if possible.
func (p *parser) another() *check {
	if len(p.checks) < cap(p.checks) {
		p.checks = p.checks[:len(p.checks)+1]
	} else {
		p.checks = append(p.checks, check{})
	}
	return &p.checks[len(p.checks)-1]
}

// check parses a check into c, which must be empty.
func (p *parser) check(c *check, k kind) *fault {
	const want = `an object, such as {"attributes":{"method":"GET","path":"/"}}`
	seen, f := p.object(want, fieldsOf[k], func(i int, seen uint32) (f *fault) {
		if seen&(1<<checksField) != 0 && seen != 1<<checksField {
			return faultf("cannot be combined with other fields: move them into the elements of the list").in("checks")
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
			f = p.listed() // overwrites c
		}
		return f.in(fieldsOf[k][i])
	})
	if f != nil {
		return f
	}
	return whole(c, k, seen)
}

// minCost returns the minimum cost in a body. It is negative for checks, which can be refunds.
func minCost(k kind) int64 {
	if k == reserveBody {
		return 0
	}
	return -sluice.MaxCost
}

// listed parses the list of checks.
func (p *parser) listed() *fault {
	p.checks, p.isList = p.checks[:0], true
	return p.list("a list of checks", "must not be empty: write at least one check", func(read int) *fault {
		if read == MaxChecks {
			bounds.CheckList.Reached()
			return faultf("more than %d checks: send the others in another request", MaxChecks)
		}
		return p.check(p.another(), listedCheck).inElement(read)
	})
}

// whole returns an error if a check lacks a field or combines fields that exclude each other.
func whole(c *check, k kind, seen uint32) *fault {
	has := func(field int) bool { return seen&(1<<field) != 0 }
	attributes, domain, descriptors := has(attributesField), has(domainField), has(descriptorsField)
	switch {
	case has(checksField):
		return nil
	case attributes && (domain || descriptors):
		return faultf("attributes cannot be combined with domain and descriptors: send two checks")
	case !attributes && !domain && !descriptors:
		return faultf(`nothing to check: write attributes, such as {"attributes":{"method":"GET","path":"/"}}, ` +
			`or domain and descriptors`)
	case domain != descriptors:
		return faultf("domain and descriptors go together: write both")
	case k == reserveBody && has(costField) && c.cost == 0:
		return faultf("0 reserves nothing: write an estimate of at least 1").in("cost")
	case c.peek && c.cost < 0:
		return faultf("a negative cost is a refund, which cannot be combined with peek: leave one of them out").in("cost")
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
		return "", faultf("must not be empty: write the domain of a rule file")
	}
	return s, nil
}

// descriptors parses [[{"key":"k","value":"v"}]].
func (p *parser) descriptors(c *check) *fault {
	const want = `a list of descriptors, such as [[{"key":"user","value":"ada"}]]`
	f := p.list(want, "must not be empty: write at least one descriptor", func(read int) *fault {
		if read == p.bounds.Descriptors {
			bounds.RLSDescriptors.Reached()
			return faultf("more than %d descriptors: send fewer, or raise %s", p.bounds.Descriptors, p.bounds.DescriptorsSetting)
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
	for i := range c.descriptors { // after parsing, because append may have moved the entries
		n := int(c.descriptors[i].Cost)
		c.descriptors[i] = rules.Descriptor{Entries: c.entries[from : from+n : from+n]}
		from += n
	}
	return nil
}

func (p *parser) descriptor(c *check) *fault {
	const want = `a list of entries, such as [{"key":"user","value":"ada"}]`
	return p.list(want, "must not be empty: write at least one entry", func(read int) *fault {
		e, f := p.entry()
		if f != nil {
			return f.inElement(read)
		}
		if read > rls.MaxEntries { // no rule matches more entries
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
			return faultf("must not be empty: write the key of a rule").in(entryFields[i])
		case i == 0:
			e.Key = text
		default:
			e.Value = text
		}
		return nil
	})
	if f == nil && seen&1 == 0 {
		f = faultf(`entry without a key: write {"key":"user","value":"ada"}`)
	}
	return e, f
}

// ttl parses the lifetime of a reservation.
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

// settleBody is the body of POST /v1/settle.
type settleBody struct {
	reservation string
	actualCost  int64
}

var settleFields = []string{"reservation", "actual_cost"}

// parseSettle parses the body of POST /v1/settle.
func (p *parser) parseSettle(body []byte) (s settleBody, f *fault) {
	p.begin(body)
	const want = `an object, such as {"reservation":"…","actual_cost":123}`
	seen, f := p.object(want, settleFields, func(i int, _ uint32) (f *fault) {
		if i == 0 {
			s.reservation, f = p.string("the reservation returned by /v1/reserve")
		} else {
			s.actualCost, f = p.int(0, sluice.MaxCost)
		}
		return f.in(settleFields[i])
	})
	switch {
	case f != nil:
		return s, f
	case seen != 3:
		return s, faultf("reservation and actual_cost go together: write both; an actual_cost of 0 cancels the reservation")
	}
	return s, p.end()
}
