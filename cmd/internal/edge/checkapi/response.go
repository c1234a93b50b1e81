package checkapi

import (
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sluiceproject/sluice"
)

// answer appends the result of a check to c.out.
func (c *call) answer(result *checkResult) {
	allowed := result.status == http.StatusOK
	b := append(c.out, `{"allowed":`...)
	b = strconv.AppendBool(b, allowed)
	b = appendField(b, "status", int64(result.status))
	b = append(b, `,"limits":[`...)
	source := sluice.SourceStore
	for i := range result.decisions {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendLimit(b, &result.takes[i], &result.decisions[i])
		source = max(source, result.decisions[i].Source)
	}
	b = append(b, ']')
	delay := time.Duration(0)
	if allowed {
		delay = result.maxDelay()
	}
	b = appendField(b, "delay_ms", millis(delay))
	b = append(b, `,"degraded":`...)
	if source.Degraded() {
		b = append(append(append(b, '"'), source.String()...), '"')
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"reason":`...)
	c.out = append(appendString(b, result.reason), '}')
}

// appendLimit appends the decision of one limit.
func appendLimit(b []byte, t *sluice.Take, d *sluice.Decision) []byte {
	b = appendString(append(b, `{"rule":`...), t.Rule.Name)
	b = strconv.AppendBool(append(b, `,"allowed":`...), d.Allowed)
	b = appendField(b, "limit", d.Limit)
	if unknown(d) {
		b = append(b, `,"remaining":null`...)
	} else {
		b = appendField(b, "remaining", d.Remaining)
	}
	b = appendField(b, "retry_after_ms", millis(d.RetryAfter))
	if unknown(d) {
		b = append(b, `,"reset_after_ms":null`...)
	} else {
		b = appendField(b, "reset_after_ms", millis(d.ResetAfter))
	}
	b = appendField(b, "delay_ms", millis(d.Delay))
	b = append(append(append(b, `,"source":"`...), d.Source.String()...), '"')
	b = strconv.AppendBool(append(b, `,"shadow_denied":`...), d.ShadowDenied)
	b = strconv.AppendBool(append(b, `,"exceeds_limit":`...), d.ExceedsLimit)
	if t.Cost < 0 {
		b = appendField(b, "refunded", -d.Granted)
	}
	return append(b, '}')
}

// appendField appends a number as a field, with a comma before it.
func appendField(b []byte, name string, n int64) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	return strconv.AppendInt(b, n, 10)
}

// millis returns d in milliseconds, rounded up, so that a client that waits this long is not too early.
func millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Millisecond) + 1
}

// appendString appends a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
			continue
		}
		i++
	}
	return append(b, '"')
}
