package describe

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice/rules"
)

// denialStatuses returns the statuses of requests over the limits of rules, in the order of the rules.
func denialStatuses(public []*rules.Rule) []int {
	var all []int
	for _, r := range public {
		if status := denialStatus(r); !slices.Contains(all, status) {
			all = append(all, status)
		}
	}
	if len(all) == 0 {
		all = []int{http.StatusTooManyRequests}
	}
	return all
}

// denialIntro describes the responses to requests over a limit, one paragraph each.
func denialIntro(public []*rules.Rule) []string {
	statuses := denialStatuses(public)
	text := "A request over a limit gets " + statusText(statuses[0])
	if len(statuses) > 1 {
		var others []string
		for _, status := range statuses {
			if status != http.StatusTooManyRequests {
				others = append(others, statusText(status))
			}
		}
		text = "A request over a limit gets " + statusText(http.StatusTooManyRequests) +
			", or " + strings.Join(others, " or ") + " where noted,"
	}
	own := 0
	for _, r := range public {
		if r.Denial.Body != "" {
			own++
		}
	}
	body := ", in its headers and as JSON in its body"
	switch {
	case own == 0:
	case own == len(public):
		body = ", in its headers"
	default:
		body = ", in its headers, and as JSON in its body unless the limit has a custom body"
	}
	text += " and is not processed. The response contains the time until a retry can succeed" + body + ". Responses to allowed requests " +
		"have headers too, so that you see the limit before you reach it."
	intro := []string{text}
	if slices.ContainsFunc(public, mayExceed) {
		intro = append(intro, exceedsIntro)
	}
	return intro
}

// mayExceed reports whether a request may cost more than the rule ever allows.
func mayExceed(r *rules.Rule) bool {
	return r.Cost.From != nil || slices.ContainsFunc(r.Limits, func(l rules.Limit) bool {
		return !l.Unlimited && !l.DenyAll && r.Cost.Default > l.Limit.Max()
	})
}

const exceedsIntro = "A request whose cost exceeds a limit gets 429 Too Many Requests without a retry time: it is never allowed."

// nameStatuses replaces the placeholder of a denial's status in headers and paragraphs by the statuses of the rules.
func (d *Page) nameStatuses(public []*rules.Rule) {
	var all []string
	for _, status := range denialStatuses(public) {
		all = append(all, strconv.Itoa(status))
	}
	list, words := strings.Join(all, ", "), strings.Join(all, " or ")
	for i := range d.Headers {
		h := &d.Headers[i]
		h.On = strings.ReplaceAll(h.On, denied, list)
		h.Meaning = strings.ReplaceAll(h.Meaning, denied, words)
	}
	for i := range d.Intro {
		d.Intro[i] = strings.ReplaceAll(d.Intro[i], denied, words)
	}
}
