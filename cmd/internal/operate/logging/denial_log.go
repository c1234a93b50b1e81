package logging

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// Keys selects how denial lines show keys.
type Keys uint8

const (
	Masked Keys = iota // the names of its parts, each with a digest of its value
	Plain              // unchanged; keys may be personal data
	None               // no key
)

// DenialLog logs a sample of the denials.
type DenialLog struct {
	log     *slog.Logger
	parts   func(*sluice.Rule, string) []rules.KeyPart
	keys    Keys
	secret  []byte
	limiter sampleLimiter
}

// DenialLogOptions configure a [DenialLog].
type DenialLogOptions struct {
	PerSecond int // maximum lines per second; at least 1
	Keys      Keys
	// Secret is the HMAC key of the digests of masked values. Processes with the same secret write the same digest for the
	// same value. If it is empty, each process uses a random secret.
	Secret []byte
	Parts  func(rule *sluice.Rule, key string) []rules.KeyPart // returns the readable parts of a key
}

// NewDenialLog returns a DenialLog that writes lines of level info to log.
func NewDenialLog(log *slog.Logger, o DenialLogOptions) *DenialLog {
	n := int64(max(1, o.PerSecond))
	d := &DenialLog{log: log, parts: o.Parts, keys: o.Keys, secret: o.Secret}
	d.limiter.init(n, time.Second/time.Duration(n))
	if len(d.secret) == 0 {
		d.secret = []byte(rand.Text())
	}
	return d
}

// Denied logs a denial. It is for [sluice.Events] and keeps no reference to the take.
func (d *DenialLog) Denied(ctx context.Context, t sluice.Take, dec sluice.Decision) {
	if !d.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	missed, ok := d.limiter.take()
	if !ok {
		return
	}
	line := []slog.Attr{slog.String("rule", cut(t.Rule.Name, valueBytes))}
	if key := d.key(t.Rule, t.Key); key != "" {
		line = append(line, slog.String("key", key))
	}
	line = append(line, slog.String("limit", t.EffectiveLimit().String()))
	if t.Cost != 1 {
		line = append(line, slog.Int64("cost", t.Cost))
	}
	if dec.ExceedsLimit {
		line = append(line, slog.String("retry_after", "never"))
	} else {
		line = append(line, slog.Duration("retry_after", dec.RetryAfter.Round(time.Millisecond)))
	}
	line = append(line, slog.String("source", dec.Source.String()))
	if dec.ShadowDenied {
		line = append(line, slog.Bool("shadow", true))
	}
	if missed > 0 {
		line = append(line, slog.Int64("suppressed", missed))
	}
	d.log.LogAttrs(ctx, slog.LevelInfo, "denied", line...)
}

// valueBytes is the maximum number of bytes written of a value sent by a client.
const valueBytes = 128

// key returns a key as it is written: "user=~5f0c2a9b, path=~91d3e4f7". It is empty for a rule without per.
func (d *DenialLog) key(rule *sluice.Rule, key string) string {
	if d.keys == None {
		return ""
	}
	var b strings.Builder
	for i, p := range d.parts(rule, key) {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(cut(p.Name, valueBytes))
		b.WriteByte('=')
		if d.keys == Plain {
			b.WriteString(quoted(cut(p.Value, valueBytes)))
		} else { // also a value that looks masked: a client may have sent it
			b.WriteString(d.mask(p.Name, p.Value))
		}
	}
	return b.String()
}

// mask returns a digest of a value. It is long enough to distinguish values, and without the secret it does not help to
// guess them. It includes the name, so that equal values of different parts have different digests.
func (d *DenialLog) mask(name, value string) string {
	h := hmac.New(sha256.New, d.secret)
	h.Write([]byte(name))
	h.Write([]byte{0})
	h.Write([]byte(value))
	return "~" + hex.EncodeToString(h.Sum(nil)[:4])
}

// quoted quotes a value that could be read as several values, unless it is already quoted.
func quoted(s string) string {
	if _, err := strconv.Unquote(s); err == nil && s[0] == '"' {
		return s
	}
	odd := func(r rune) bool {
		return r == ',' || r == '=' || r == '"' || r == '\\' || r == ' ' || r == unicode.ReplacementChar || !unicode.IsPrint(r)
	}
	if s == "" || strings.ContainsFunc(s, odd) {
		return strconv.Quote(s)
	}
	return s
}
