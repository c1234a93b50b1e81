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

// limitsText says limits to people who do not know rule files: "2 per second, bursts of 2".
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
			waiting = "of which none waits"
		}
		return fmt.Sprintf("%s per %s, %s", n, unit, waiting)
	case sluice.SlidingWindowLog, sluice.SlidingWindowCounter:
		return fmt.Sprintf("%s in any %s", n, unit)
	case sluice.FixedWindow:
		text := fmt.Sprintf("%s per %s", n, unit)
		if l.Align == sluice.AlignFirstRequest {
			text += " from the first request on"
		}
		if l.SoftExcess > 0 {
			text += fmt.Sprintf(", for up to %s %s more", term.DurationInWords(l.SoftPeriod), term.Thousands(l.SoftExcess))
		}
		return text
	}
	if l.Refill == sluice.RefillInterval {
		return fmt.Sprintf("%s per %s, given all at once, at most %s saved up", n, unit, burst)
	}
	text := fmt.Sprintf("%s per %s, bursts of %s", n, unit, burst)
	switch {
	case l.Initial == 0 || l.Initial == l.Max():
	case l.Initial < 0:
		text += ", none at the first request"
	default:
		text += fmt.Sprintf(", %s at the first request", term.Thousands(l.Initial))
	}
	if waiting := waitingText(&l, r); waiting != "" {
		text += ", " + waiting
	}
	return text
}

// waitingText says how many requests wait at the same time for a limit of a rule, and for how long: "up to 3 wait for their turn".
// It is empty if none does. How many wait for a bucket is not said, and how long only about: of requests that come at the same moment
// each is judged by those before it, before the store has told what is left, so that it may be one more or some fewer.
func waitingText(l *sluice.Limit, r *rules.Rule) string {
	cost, n := max(1, r.Cost.Default), int64(0)
	if r.MaxDelay > 0 {
		n = int64(r.MaxDelay / (l.Window / time.Duration(l.Count)) / time.Duration(cost))
	}
	if l.Algorithm != sluice.LeakyQueue {
		if r.OnLimit != rules.OnLimitDelay || n == 0 {
			return ""
		}
		return "then some wait for their turn, for about " + term.DurationInWords(r.MaxDelay) + " at most"
	}
	places, longest := l.Max()/cost-1, "" // the one that left last has a place until its time is over
	if r.MaxDelay > 0 && n < places {
		places, longest = n, ", for "+term.DurationInWords(r.MaxDelay)+" at most"
	}
	switch {
	case places <= 0:
		return ""
	case places == 1:
		return "up to 1 waits for its turn" + longest
	}
	return "up to " + term.Thousands(places) + " wait for their turn" + longest
}

// windowText is what stands behind per: "second", "3 hours", "calendar month (Asia/Seoul)".
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

// perText says whom a rule counts for: "each user", "everybody together".
func perText(r *rules.Rule) string {
	if len(r.Per) == 0 {
		return "everybody together"
	}
	names := make([]string, len(r.Per))
	for i := range r.Per {
		names[i] = refText(r.Per[i].Name)
	}
	return "each " + strings.Join(names, " and ")
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

// notesText are the conditions under which requests count otherwise than one each.
func notesText(r *rules.Rule) []string {
	var notes []string
	switch {
	case r.Cost.From != nil:
		notes = append(notes, "the cost of a request depends on it: "+refText(r.Cost.From.Name))
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
		notes = append(notes, "only answers with status "+strings.Join(texts, ", ")+" count")
	}
	if r.ActualCost != nil {
		notes = append(notes, "what a request has really cost is known, and charged, when it is answered")
	}
	if r.ChargeDenied {
		notes = append(notes, "requests that are refused count too")
	}
	if note := missingText(r); note != "" {
		notes = append(notes, note)
	}
	if note := denialText(r); note != "" {
		notes = append(notes, note)
	}
	switch r.OnLimit {
	case rules.OnLimitDelay:
		notes = append(notes, "requests over the limit wait for their turn while there is room")
	case rules.OnLimitQueue:
		notes = append(notes, "requests over the limit are kept and done later")
	case rules.OnLimitDeny:
	}
	return notes
}

// missingText says what a request gets that lacks what the rule counts by, if it is denied for it.
func missingText(r *rules.Rule) string {
	if r.OnMissing != rules.MissingReject || len(r.Per) == 0 {
		return ""
	}
	names := make([]string, len(r.Per))
	for i := range r.Per {
		names[i] = "the " + refText(r.Per[i].Name)
	}
	return "a request that lacks " + strings.Join(names, " or ") + " is answered with " + statusText(http.StatusForbidden)
}

// denialText says what a request over the limit gets, if that is not the default response.
func denialText(r *rules.Rule) string {
	var parts []string
	if status := denialStatus(r); status != http.StatusTooManyRequests {
		parts = append(parts, statusText(status))
	}
	if r.Denial.Body != "" {
		parts = append(parts, "a body of their own")
	}
	if len(parts) == 0 {
		return ""
	}
	return "requests over the limit are answered with " + strings.Join(parts, " and ")
}

func denialStatus(r *rules.Rule) int { return cmp.Or(r.Denial.Status, http.StatusTooManyRequests) }

func statusText(status int) string {
	return strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status))
}
