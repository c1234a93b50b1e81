package adminapi

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/rules"
)

const selectorHelp = `{"rule": …, "key": {…}}, {"domain": …, "descriptor": [{"key": …, "value": …}]} or {"request": {…}}`

// find returns the selected buckets.
func (a *api) find(set *rules.Set, s *adminmsg.Selector) ([]sluice.Bucket, error) {
	ways := 0
	for _, given := range []bool{s.Rule != "", s.Domain != "", s.Request != nil} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1, s.Key != nil && s.Rule == "", s.Descriptor != nil && s.Domain == "":
		return nil, problemf(http.StatusBadRequest, "write exactly one selector: %s", selectorHelp)
	case s.Rule != "":
		for _, rule := range a.Keyed {
			if rule.Name == s.Rule {
				return ofKeyed(s, rule)
			}
		}
		all, err := set.Buckets(s.Rule, partsOf(s.Key))
		if err != nil && !errors.Is(err, rules.ErrUnknownRule) {
			err = problemf(http.StatusBadRequest, "%v", err)
		}
		return all, err
	case s.Domain != "":
		return ofDescriptor(s, set)
	}
	return ofRequest(s, set)
}

// findTiers returns the selected buckets with the limit of each tier, because a key alone does not determine its tier.
func (a *api) findTiers(set *rules.Set, s *adminmsg.Selector) ([]rules.TierBucket, error) {
	plain, err := a.find(set, s)
	if err != nil {
		return nil, err
	}
	if s.Rule != "" {
		if tiers, err := set.TierBuckets(s.Rule, partsOf(s.Key)); err == nil {
			return tiers, nil
		}
	}
	all := make([]rules.TierBucket, len(plain))
	for i := range plain {
		all[i].Bucket = plain[i]
	}
	return all, nil
}

// ofKeyed returns the bucket of a rule that is in no file. The key is quoted as in GET /v1/top, or plain.
func ofKeyed(s *adminmsg.Selector, rule *sluice.Rule) ([]sluice.Bucket, error) {
	if len(s.Key) != 1 || s.Key[0].Key != "key" {
		return nil, problemf(http.StatusBadRequest, `rule %s: write {"key": {"key": …}}`, rule.Name)
	}
	text := s.Key[0].Value
	if unquoted, err := strconv.Unquote(text); err == nil && text[0] == '"' {
		text = unquoted
	}
	return []sluice.Bucket{{Rule: rule, Key: text}}, nil
}

func ofDescriptor(s *adminmsg.Selector, set *rules.Set) ([]sluice.Bucket, error) {
	d := []rules.Descriptor{{Entries: entries(s.Descriptor)}}
	var m rules.DescriptorMatches
	set.MatchDescriptors(s.Domain, d, &m)
	if len(m.Takes) == 0 {
		return nil, problemf(http.StatusNotFound, "no limit applies to this descriptor: %s", set.ExplainDescriptors(s.Domain, d)[0].Outcome)
	}
	return bucketsOf(m.Takes), nil
}

func ofRequest(s *adminmsg.Selector, set *rules.Set) ([]sluice.Bucket, error) {
	h, err := sampleOf(s.Request)
	if err != nil {
		return nil, err
	}
	sent, err := h.Request()
	if err != nil {
		return nil, err
	}
	m := rules.MatchResult{Concurrency: true}
	if err := set.Match(httplimit.NewRulesRequest(sent, set), &m); err != nil {
		return nil, problemf(http.StatusBadRequest, "request: %s", strings.TrimPrefix(err.Error(), "rules: "))
	}
	if len(m.Takes) == 0 {
		return nil, problemf(http.StatusNotFound, "no limit applies to this request: POST /v1/explain shows the reason")
	}
	return bucketsOf(m.Takes), nil
}

// bucketsOf returns the buckets of takes, with copied keys, because the keys of takes are reused.
func bucketsOf(takes []sluice.Take) []sluice.Bucket {
	all := make([]sluice.Bucket, len(takes))
	for i := range takes {
		all[i] = takes[i].Bucket()
		all[i].Key = strings.Clone(all[i].Key)
	}
	return all
}

func entries(all []adminmsg.Entry) []rules.Entry {
	out := make([]rules.Entry, len(all))
	for i, e := range all {
		out[i] = rules.Entry(e)
	}
	return out
}

// sampleOf converts the request of a message for matching.
func sampleOf(q *adminmsg.Request) (*sample.HTTP, error) {
	bad := func(format string, args ...any) error {
		return problemf(http.StatusBadRequest, "request: "+format, args...)
	}
	if (q.URL == "") == (q.Path == "") {
		return nil, bad(`write a path, such as "/posts", or a url, such as "https://api.example.com/posts"`)
	}
	method := q.Method
	if method == "" {
		method = http.MethodGet
	}
	h, err := sample.NewHTTP(method, q.URL+q.Path)
	if err != nil {
		return nil, bad("%v", err)
	}
	var names []string
	for name := range q.Headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := h.AddHeader(name, q.Headers[name]); err != nil {
			return nil, bad("headers: %v", err)
		}
	}
	if q.IP != "" {
		if h.Addr, err = netip.ParseAddr(q.IP); err != nil {
			return nil, bad("ip %q: write an address, such as 192.0.2.1 or 2001:db8::1", q.IP)
		}
	}
	h.Claims, h.Attributes = q.Claims, q.Attributes
	if _, err := h.Request(); err != nil { // not one that net/http accepts
		return nil, bad("not a valid HTTP request")
	}
	return h, nil
}
