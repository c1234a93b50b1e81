package describe

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rules"
)

// limitsText says limits to people who do not know rule files: "2 per second, bursts of 2".
func limitsText(list []rules.Limit) string {
	texts := make([]string, len(list))
	for i := range list {
		switch l := &list[i]; {
		case l.Unlimited:
			return "unlimited"
		case l.DenyAll:
			return "not allowed"
		default:
			texts[i] = limitText(l.Limit)
		}
	}
	return strings.Join(texts, "; and ")
}

func limitText(l sluice.Limit) string {
	n, unit := term.Thousands(l.Count), windowText(&l)
	burst := term.Thousands(max(l.Burst, 0))
	if l.Burst == 0 {
		burst = n
	}
	switch l.Algorithm {
	case sluice.Concurrency:
		return n + " at the same time"
	case sluice.LeakyQueue:
		return fmt.Sprintf("%s per %s, up to %s wait for their turn", n, unit, burst)
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
	return text
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
	switch r.OnLimit {
	case rules.OnLimitDelay:
		notes = append(notes, "requests over the limit wait for their turn while there is room")
	case rules.OnLimitQueue:
		notes = append(notes, "requests over the limit are kept and done later")
	case rules.OnLimitDeny:
	}
	return notes
}
