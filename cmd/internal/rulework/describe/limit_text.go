package describe

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rules"
)

// limitsText describes limits for readers without knowledge of rule files: "2 per second, bursts of 2".
func limitsText(list []rules.Limit, r *rules.Rule) string {
	texts := make([]string, len(list))
	for i := range list {
		switch l := &list[i]; {
		case l.Unlimited:
			return "unlimited"
		case l.DenyAll:
			return "not allowed (403)"
		default:
			texts[i] = limitText(l.Limit, r)
		}
	}
	return strings.Join(texts, "; and ")
}

func limitText(l sluice.Limit, r *rules.Rule) string {
	n, unit := term.Thousands(l.Count), windowText(&l)
	burst := term.Thousands(max(l.Burst, 0))
	if l.Burst == 0 {
		burst = n
	}
	switch l.Algorithm {
	case sluice.Concurrency:
		return n + " at the same time"
	case sluice.LeakyQueue:
		waiting := waitingText(&l, r)
		if waiting == "" {
			waiting = "none delayed"
		}
		return fmt.Sprintf("%s per %s, %s", n, unit, waiting)
	case sluice.SlidingWindowLog, sluice.SlidingWindowCounter:
		return fmt.Sprintf("%s in any %s", n, unit)
	case sluice.FixedWindow:
		text := fmt.Sprintf("%s per %s", n, unit)
		if l.Align == sluice.AlignFirstRequest {
			text += " from the first request"
		}
		if l.SoftExcess > 0 {
			text += fmt.Sprintf(", plus %s for up to %s", term.Thousands(l.SoftExcess), term.DurationInWords(l.SoftPeriod))
		}
		return text
	}
	if l.Refill == sluice.RefillInterval {
		return fmt.Sprintf("%s per %s, added all at once, at most %s accumulated", n, unit, burst)
	}
	text := fmt.Sprintf("%s per %s, bursts of %s", n, unit, burst)
	switch {
	case l.Initial == 0 || l.Initial == l.Max():
	case l.Initial < 0:
		text += ", starting with 0"
	default:
		text += fmt.Sprintf(", starting with %s", term.Thousands(l.Initial))
	}
	if waiting := waitingText(&l, r); waiting != "" {
		text += ", " + waiting
	}
	return text
}

// waitingText describes how many requests a limit of a rule delays at the same time, and for how long: "up to 3 delayed". It
// is empty if the limit delays none. It gives no number for a bucket, and only an approximate delay: of requests that arrive
// at the same moment, each is judged before the store returns the remaining quota, so that there may be one more or a few less.
func waitingText(l *sluice.Limit, r *rules.Rule) string {
	cost, n := max(1, r.Cost.Default), int64(0)
	if r.MaxDelay > 0 {
		n = int64(r.MaxDelay / (l.Window / time.Duration(l.Count)) / time.Duration(cost))
	}
	if l.Algorithm != sluice.LeakyQueue {
		if r.OnLimit != rules.OnLimitDelay || n == 0 {
			return ""
		}
		return "then delayed by about " + term.DurationInWords(r.MaxDelay) + " at most"
	}
	places, longest := l.Max()/cost-1, "" // the request that left last keeps its place until its time is over
	if r.MaxDelay > 0 && n < places {
		places, longest = n, ", by "+term.DurationInWords(r.MaxDelay)+" at most"
	}
	switch {
	case places <= 0:
		return ""
	}
	return "up to " + term.Thousands(places) + " delayed" + longest
}

// windowText returns the text after per: "second", "3 hours", "calendar month (Asia/Seoul)".
func windowText(l *sluice.Limit) string {
	if l.Align == sluice.AlignCalendar {
		zone := "UTC"
		if l.Zone != nil {
			zone = l.Zone.String()
		}
		return fmt.Sprintf("calendar %v (%s)", l.Calendar, zone)
	}
	return strings.TrimPrefix(term.DurationInWords(l.Window), "1 ")
}

// perText returns the key by which a rule counts, in words: "user", "all clients together".
func perText(r *rules.Rule) string {
	if len(r.Per) == 0 {
		return "all clients together"
	}
	names := make([]string, len(r.Per))
	for i := range r.Per {
		names[i] = refText(r.Per[i].Name)
	}
	return strings.Join(names, " and ")
}

func refText(ref string) string {
	kind, name, _ := strings.Cut(ref, ":")
	switch kind {
	case "ip":
		return "address"
	case "basic_user":
		return "user name"
	case "path":
		if name != "" {
			return name + " in the path"
		}
	case "header":
		return "value of the header " + name
	case "query":
		return "value of the parameter " + name
	case "cookie":
		return "value of the cookie " + name
	case "claim", "attr":
		return name
	}
	return ref
}

// notesText returns the conditions under which a request does not count as one.
func notesText(r *rules.Rule) []string {
	var notes []string
	switch {
	case r.Cost.From != nil:
		notes = append(notes, "the cost varies by request: "+refText(r.Cost.From.Name))
	case r.Cost.Default > 1:
		notes = append(notes, "each request counts as "+term.Thousands(r.Cost.Default))
	}
	if len(r.ChargeStatus) > 0 {
		texts := make([]string, len(r.ChargeStatus))
		for i, s := range r.ChargeStatus {
			texts[i] = strconv.Itoa(s.From)
			if s.To != s.From {
				texts[i] += " to " + strconv.Itoa(s.To)
			}
		}
		notes = append(notes, "only responses with status "+strings.Join(texts, ", ")+" count")
	}
	if r.ActualCost != nil {
		notes = append(notes, "the actual cost of a request is charged after its response")
	}
	if r.ChargeDenied {
		notes = append(notes, "denied requests count too")
	}
	if note := missingText(r); note != "" {
		notes = append(notes, note)
	}
	if note := denialText(r); note != "" {
		notes = append(notes, note)
	}
	switch r.OnLimit {
	case rules.OnLimitDelay:
		notes = append(notes, "requests over the limit are delayed if possible, otherwise denied")
	case rules.OnLimitQueue:
		notes = append(notes, "requests over the limit are queued and processed later")
	case rules.OnLimitDeny:
	}
	return notes
}

// missingText describes the response to a request without an attribute of the key, if the rule rejects it.
func missingText(r *rules.Rule) string {
	if r.OnMissing != rules.MissingReject || len(r.Per) == 0 {
		return ""
	}
	names := make([]string, len(r.Per))
	for i := range r.Per {
		names[i] = "the " + refText(r.Per[i].Name)
	}
	return "requests without " + strings.Join(names, " or ") + " get " + statusText(http.StatusForbidden)
}

// denialText describes the response to a request over the limit, if it is not the default.
func denialText(r *rules.Rule) string {
	var parts []string
	if status := denialStatus(r); status != http.StatusTooManyRequests {
		parts = append(parts, statusText(status))
	}
	if r.Denial.Body != "" {
		parts = append(parts, "a custom body")
	}
	if len(parts) == 0 {
		return ""
	}
	return "requests over the limit get " + strings.Join(parts, " and ")
}

func denialStatus(r *rules.Rule) int { return cmp.Or(r.Denial.Status, http.StatusTooManyRequests) }

func statusText(status int) string {
	return strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status))
}
