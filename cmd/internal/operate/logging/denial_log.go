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

// Keys says how a line tells whose request was denied.
type Keys uint8

const (
	Masked Keys = iota // the names of its parts, with a digest in place of each value
	Plain              // as it is; keys are personal data
	None
)

// DenialLog writes some of the denials into a log.
type DenialLog struct {
	log     *slog.Logger
	parts   func(*sluice.Rule, string) []rules.KeyPart
	keys    Keys
	secret  []byte
	limiter sampleLimiter
}

// DenialLogOptions are how [DenialLog] are written.
type DenialLogOptions struct {
	PerSecond int // lines; at least 1
	Keys      Keys
	// Secret keys the digests of masked values. With the same secret several processes write the same digest for the
	// same value; without one each process has its own.
	Secret []byte
	Parts  func(rule *sluice.Rule, key string) []rules.KeyPart // of a key, for people
}

// NewDenialLog returns denials that are written with level info.
func NewDenialLog(log *slog.Logger, o DenialLogOptions) *DenialLog {
	n := int64(max(1, o.PerSecond))
	d := &DenialLog{log: log, parts: o.Parts, keys: o.Keys, secret: o.Secret}
	d.limiter.init(n, time.Second/time.Duration(n))
	if len(d.secret) == 0 {
		d.secret = []byte(rand.Text())
	}
	return d
}

// Denied is for [sluice.Events]. It keeps nothing of the take.
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

// valueBytes bounds what is written of a value that a client sent.
const valueBytes = 128

// key is a key as it is written: "user=~5f0c2a9b, path=~91d3e4f7". It is empty for a rule that counts all together.
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
		} else { // also what is masked already: a value may only look like it
			b.WriteString(d.mask(p.Name, p.Value))
		}
	}
	return b.String()
}

// mask is a digest of a value that is long enough to tell values apart and, without the secret, of no use for guessing
// them. The name is part of it, so that equal values of different kinds do not give each other away.
func (d *DenialLog) mask(name, value string) string {
	h := hmac.New(sha256.New, d.secret)
	h.Write([]byte(name))
	h.Write([]byte{0})
	h.Write([]byte(value))
	return "~" + hex.EncodeToString(h.Sum(nil)[:4])
}

// quoted quotes a value that could be taken for more than one, unless it is quoted already.
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
