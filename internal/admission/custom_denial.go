package admission

import (
	"cmp"
	"encoding/json"
	"html"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// customDenial is a denial by a rule with a custom response.
type customDenial struct {
	rule  *rules.Rule // nil: default response
	limit *sluice.Limit
}

// write writes the rule's custom response. gRPC clients only support a custom message. The headers have been set.
func (c customDenial) write(w http.ResponseWriter, r *http.Request, d *reported) {
	var room [4]string
	p := denialProblem(r, d.rules, d.policies, d.all(), room[:0])
	own := &c.rule.Denial
	grpc := strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
	if own.Status != 0 && !grpc {
		p.Status, p.Title = own.Status, cmp.Or(http.StatusText(own.Status), p.Title)
	}
	ds := d.all()
	seconds := max(1, quota.CeilSeconds(ds[sluice.MostRestrictive(ds)].RetryAfter))
	if own.Body == "" || grpc {
		if own.Message != "" {
			p.Detail = c.expand(own.Message, "", seconds)
		}
		p.Write(w)
		return
	}
	contentType := cmp.Or(own.ContentType, "text/plain; charset=utf-8")
	h := w.Header()
	h.Del("Content-Length") // of the response that the denial replaces
	h.Set("Content-Type", contentType)
	w.WriteHeader(p.Status)
	_, _ = io.WriteString(w, c.expand(own.Body, contentType, seconds))
}

// expand replaces the placeholders of a template by values, escaped for the content type.
func (c customDenial) expand(text, contentType string, seconds int64) string {
	escape := escaper(contentType)
	return strings.NewReplacer(
		"{rule}", escape(c.rule.Name), "{limit}", escape(limitText(*c.limit)), "{retry_after}", strconv.FormatInt(seconds, 10),
	).Replace(text)
}

// limitText returns a limit for clients: count and window, without algorithm and burst.
func limitText(l sluice.Limit) string {
	l.Burst, l.Initial, l.SoftExcess = 0, 0, 0
	if l.Algorithm == sluice.Concurrency {
		l.Window = sluice.DefaultPermitTTL
	} else {
		l.Algorithm = sluice.TokenBucket
	}
	return l.String()
}

func escaper(contentType string) func(string) string {
	media, _, _ := mime.ParseMediaType(contentType)
	switch {
	case media == "application/json" || strings.HasSuffix(media, "+json"):
		return func(s string) string {
			b, _ := json.Marshal(s) // strings always marshal
			return string(b[1 : len(b)-1])
		}
	case strings.HasSuffix(media, "html") || strings.HasSuffix(media, "xml"):
		return html.EscapeString
	}
	return func(s string) string { return s }
}
