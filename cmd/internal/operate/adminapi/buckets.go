package adminapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// keyOf converts the parts of a key to a message.
func keyOf(parts []rules.KeyPart) adminmsg.Key {
	key := make(adminmsg.Key, len(parts))
	for i, p := range parts {
		key[i] = adminmsg.Entry{Key: p.Name, Value: p.Value}
	}
	return key
}

// partsOf converts the key of a message to parts.
func partsOf(key adminmsg.Key) []rules.KeyPart {
	if key == nil {
		return nil
	}
	parts := make([]rules.KeyPart, len(key))
	for i, e := range key {
		parts[i] = rules.KeyPart{Name: e.Key, Value: e.Value}
	}
	return parts
}

func nameOf(set *rules.Set, rule *sluice.Rule, key string) adminmsg.BucketName {
	return adminmsg.BucketName{Rule: rule.Name, Key: keyOf(set.KeyParts(rule, key))}
}

func namesOf(set *rules.Set, buckets []sluice.Bucket) (all []adminmsg.BucketName) {
	for i := range buckets {
		all = append(all, nameOf(set, buckets[i].Rule, buckets[i].Key))
	}
	return all
}

// peek returns the state of buckets. It changes nothing.
func (a *api) peek(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in adminmsg.Selector
	if err := readJSON(r, &in); err != nil {
		return nil, err
	}
	set := a.Rules()
	buckets, err := a.findTiers(set, &in)
	if err != nil {
		return nil, err
	}
	out := adminmsg.Peeked{Buckets: []adminmsg.Bucket{}}
	for i := range buckets {
		state, err := a.stateOf(r.Context(), set, &buckets[i])
		if err != nil {
			return nil, err
		}
		out.Buckets = append(out.Buckets, state)
	}
	return out, nil
}

func (a *api) stateOf(ctx context.Context, set *rules.Set, b *rules.TierBucket) (adminmsg.Bucket, error) {
	take := sluice.Take{Rule: b.Rule, Limit: b.Limit, Key: b.Key, HashTag: b.HashTag, DryRun: true}
	var out [1]sluice.Decision
	if _, err := a.Limiter.Decide(ctx, []sluice.Take{take}, out[:]); err != nil {
		return adminmsg.Bucket{}, err
	}
	state := adminmsg.Bucket{BucketName: nameOf(set, b.Rule, b.Key), Tier: b.Tier, BucketState: describe(&out[0])}
	if out[0].Blocked {
		if left, err := a.Limiter.BlockedBucket(ctx, b.Bucket); err == nil {
			state.BlockedSeconds = left.Seconds()
		}
	}
	return state, nil
}

// describe converts the decision of a peek. A shadow-denied decision is not allowed.
func describe(d *sluice.Decision) adminmsg.BucketState {
	return adminmsg.BucketState{
		Allowed: d.Allowed && !d.ShadowDenied, Limit: d.Limit, Remaining: d.Remaining,
		RetryAfterSeconds: d.RetryAfter.Seconds(), ResetAfterSeconds: d.ResetAfter.Seconds(), Source: d.Source.String(),
	}
}

// selected decodes a body with a selector and returns the selected buckets.
func (a *api) selected(r *http.Request, set *rules.Set, body any, s *adminmsg.Selector) ([]sluice.Bucket, error) {
	if err := readJSON(r, body); err != nil {
		return nil, err
	}
	return a.find(set, s)
}

// reset resets the usage of buckets and lifts their blocks.
func (a *api) reset(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in adminmsg.Selector
	set := a.Rules()
	buckets, err := a.selected(r, set, &in, &in)
	if err == nil {
		// Without cancellation, because the audit log would otherwise not match the result if the client disconnects.
		err = a.Limiter.ResetBuckets(context.WithoutCancel(r.Context()), buckets...)
	}
	a.audit(r, "reset", selectorOf(set, buckets), err, unknownRules(err, in.Rule)...)
	if err != nil {
		return nil, err
	}
	return adminmsg.Changed{Buckets: namesOf(set, buckets)}, nil
}

// maxBlock is the maximum duration of a block.
const maxBlock = 366 * 24 * time.Hour

// block blocks buckets for a duration, or lifts their blocks if it is 0.
func (a *api) block(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in adminmsg.Block
	set := a.Rules()
	buckets, err := a.selected(r, set, &in, &in.Selector)
	length, wrong := strictyaml.ParseDuration(in.Duration)
	if err == nil && (wrong != nil || length < 0 || length > maxBlock) {
		err = problemf(http.StatusBadRequest, `duration: %.40q: write a duration of at most 366d, such as "10m" or "1d"; "0s" lifts a block`, in.Duration)
	}
	if err == nil {
		err = a.Limiter.BlockBuckets(context.WithoutCancel(r.Context()), length, buckets...)
	}
	a.audit(r, "block", selectorOf(set, buckets), err, append(unknownRules(err, in.Rule), "duration", length)...)
	if err != nil {
		return nil, err
	}
	out := adminmsg.Blocked{Changed: adminmsg.Changed{Buckets: namesOf(set, buckets)}}
	if length > 0 {
		until := time.Now().Add(length).UTC().Truncate(time.Second)
		out.Until = &until
	}
	return out, nil
}

// keys lists a page of the buckets and blocks in the store.
func (a *api) keys(_ http.ResponseWriter, r *http.Request) (any, error) {
	set := a.Rules()
	q := sluice.ListOptions{PageToken: r.URL.Query().Get("page_token")}
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1000 {
			return nil, problemf(http.StatusBadRequest, "limit: %.40q: write 1 to 1000 keys per page", text)
		}
		q.PageSize = n
	}
	name := r.URL.Query().Get("rule")
	for _, c := range set.ActiveRules() {
		if name == "" || name == c.Name {
			q.Rules = append(q.Rules, c.Rules...)
		}
	}
	if len(q.Rules) == 0 {
		return nil, problemf(http.StatusNotFound, "there is no active rule %q: GET /v1/rules lists the rules", name)
	}
	page, err := a.Limiter.ListBuckets(r.Context(), q)
	if err != nil {
		if p := problemOf(err); p.Status == http.StatusNotImplemented {
			return nil, problemf(http.StatusNotImplemented, "this store cannot list its keys: use POST /v1/peek for one key, or GET /v1/top for the keys denied most often")
		}
		return nil, badPageToken(q.PageToken, err)
	}
	out := adminmsg.KeyPage{Keys: []adminmsg.StoredKey{}, NextPageToken: page.NextPageToken}
	for i := range page.Buckets {
		if l := &page.Buckets[i]; l.Rule != nil {
			out.Keys = append(out.Keys, listed(set, l))
		}
	}
	return out, nil
}

// badPageToken replaces the error of a store that rejects a page token by one that names the API's field. All other
// parameters of the call were checked before it.
func badPageToken(token string, err error) error {
	if token != "" && errors.Is(err, sluice.ErrInvalid) {
		return problemf(http.StatusBadRequest, "page_token: %q is not a next_page_token: write that of the previous page, or leave it out for the first page", token)
	}
	return err
}

func listed(set *rules.Set, l *sluice.BucketInfo) adminmsg.StoredKey {
	k := adminmsg.StoredKey{Rule: l.Rule.Name, Digest: l.KeyDigest, Blocked: l.Blocked, ExpiresInSeconds: l.ExpiresIn.Seconds()}
	if l.KeyDigest == "" {
		k.Key = keyOf(set.KeyParts(l.Rule, l.Key))
	}
	if l.Decision != nil {
		state := describe(l.Decision)
		k.State = &state
	}
	return k
}
