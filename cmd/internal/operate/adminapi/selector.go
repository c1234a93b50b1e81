package adminapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/rules"
)

// selector says which buckets are meant: those of a rule for somebody, of a descriptor, or those that a request counts in.
type selector struct {
	Rule       string   `json:"rule"`
	Key        keyParts `json:"key"`
	Domain     string   `json:"domain"`
	Descriptor []entry  `json:"descriptor"`
	Request    *request `json:"request"`
}

// entry is one entry of a descriptor.
type entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// request is an HTTP request as people write it down.
type request struct {
	Method     string            `json:"method"`
	URL        string            `json:"url"`
	Path       string            `json:"path"`
	Headers    map[string]string `json:"headers"`
	IP         string            `json:"ip"`
	Claims     map[string]string `json:"claims"`
	Attributes map[string]string `json:"attributes"`
}

const selectorHelp = `{"rule": …, "key": {…}}, {"domain": …, "descriptor": [{"key": …, "value": …}]} or {"request": {…}}`

// find finds what is meant.
func (a *api) find(set *rules.Set, s *selector) ([]sluice.Bucket, error) {
	ways := 0
	for _, given := range []bool{s.Rule != "", s.Domain != "", s.Request != nil} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1, s.Key != nil && s.Rule == "", s.Descriptor != nil && s.Domain == "":
		return nil, problemf(http.StatusBadRequest, "say what is meant in one way: %s", selectorHelp)
	case s.Rule != "":
		for _, rule := range a.Keyed {
			if rule.Name == s.Rule {
				return s.ofKeyed(rule)
			}
		}
		all, err := set.Buckets(s.Rule, s.Key)
		if err != nil && !errors.Is(err, rules.ErrNoRule) {
			err = problemf(http.StatusBadRequest, "%v", err)
		}
		return all, err
	case s.Domain != "":
		return s.ofDescriptor(set)
	}
	return s.ofRequest(set)
}

// findTiers finds what is meant with every limit that it may have: a key alone does not tell its tier.
func (a *api) findTiers(set *rules.Set, s *selector) ([]rules.TierBucket, error) {
	plain, err := a.find(set, s)
	if err != nil {
		return nil, err
	}
	if s.Rule != "" {
		if tiers, err := set.TierBuckets(s.Rule, s.Key); err == nil {
			return tiers, nil
		}
	}
	all := make([]rules.TierBucket, len(plain))
	for i := range plain {
		all[i].Bucket = plain[i]
	}
	return all, nil
}

// ofKeyed is the bucket of a rule that is in no file. The key is written as top writes it, or as it is.
func (s *selector) ofKeyed(rule *sluice.Rule) ([]sluice.Bucket, error) {
	if len(s.Key) != 1 || s.Key[0].Name != "key" {
		return nil, problemf(http.StatusBadRequest, `rule %s: write {"key": {"key": …}}`, rule.Name)
	}
	text := s.Key[0].Value
	if unquoted, err := strconv.Unquote(text); err == nil && text[0] == '"' {
		text = unquoted
	}
	return []sluice.Bucket{{Rule: rule, Key: text}}, nil
}

func (s *selector) ofDescriptor(set *rules.Set) ([]sluice.Bucket, error) {
	d := []rules.Descriptor{{Entries: entries(s.Descriptor)}}
	var m rules.MatchedDescriptors
	set.MatchDescriptors(s.Domain, d, &m)
	if len(m.Takes) == 0 {
		return nil, problemf(http.StatusNotFound, "nothing counts this: %s", set.ExplainDescriptors(s.Domain, d)[0].Outcome)
	}
	return bucketsOf(m.Takes), nil
}

func (s *selector) ofRequest(set *rules.Set) ([]sluice.Bucket, error) {
	h, err := s.Request.http()
	if err != nil {
		return nil, err
	}
	sent, err := h.Request()
	if err != nil {
		return nil, err
	}
	m := rules.Matched{Flight: true}
	if err := set.Match(httplimit.NewRulesRequest(sent, set), &m); err != nil {
		return nil, problemf(http.StatusBadRequest, "request: %s", strings.TrimPrefix(err.Error(), "rules: "))
	}
	if len(m.Takes) == 0 {
		return nil, problemf(http.StatusNotFound, "nothing counts this request: POST /v1/explain says why")
	}
	return bucketsOf(m.Takes), nil
}

// bucketsOf are where takes count, with keys that last.
func bucketsOf(takes []sluice.Take) []sluice.Bucket {
	all := make([]sluice.Bucket, len(takes))
	for i := range takes {
		all[i] = takes[i].Bucket()
		all[i].Key = strings.Clone(all[i].Key)
	}
	return all
}

func entries(all []entry) []rules.Entry {
	out := make([]rules.Entry, len(all))
	for i, e := range all {
		out[i] = rules.Entry(e)
	}
	return out
}

// http is the request as the rules see it.
func (q *request) http() (*sample.HTTP, error) {
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
	if _, err := h.Request(); err != nil { // as one that a server would refuse
		return nil, bad("it is none that a server takes")
	}
	return h, nil
}

// keyParts is an object whose fields are in order, because descriptors are.
type keyParts []rules.KeyPart

// MarshalJSON writes an object.
func (k keyParts) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, p := range k {
		if i > 0 {
			b = append(b, ',')
		}
		for j, text := range []string{p.Name, p.Value} {
			if j > 0 {
				b = append(b, ':')
			}
			quoted, err := json.Marshal(text)
			if err != nil {
				return nil, err
			}
			b = append(b, quoted...)
		}
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads an object of texts.
func (k *keyParts) UnmarshalJSON(b []byte) error {
	const want = `key: write an object of texts, such as {"user": "ada"}`
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New(want)
	}
	*k = keyParts{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		value, err := d.Token()
		text, ok := value.(string)
		if err != nil || !ok {
			return fmt.Errorf("%s: the value of %q is no text", want, name)
		}
		*k = append(*k, rules.KeyPart{Name: name.(string), Value: text})
	}
	return nil
}
