package accesslog

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

var errJSON = errors.New("not a JSON object")

// parseJSON reads a line that appendJSON or a later version of it wrote: unknown fields are ignored. It reads flat objects
// and is several times as fast as encoding/json.
func parseJSON(line string, r *Record) error {
	s := scanner{line, 1}
	for first := true; ; first = false {
		s.space()
		if s.take('}') {
			break
		}
		if !first && !s.take(',') {
			return errJSON
		}
		s.space()
		name, ok := s.text()
		if s.space(); !ok || !s.take(':') {
			return errJSON
		}
		s.space()
		if err := s.value(name, r); err != nil {
			return err
		}
	}
	if s.space(); s.at != len(line) {
		return errJSON
	}
	switch {
	case r.Time.IsZero():
		return errors.New(`"time" is missing`)
	case r.Method == "" && r.Path == "":
		return errors.New(`"method" and "path" are missing`)
	}
	return nil
}

// value reads the value of a field into the record.
func (s *scanner) value(name string, r *Record) error {
	if s.at < len(s.s) && s.s[s.at] == '"' {
		v, ok := s.text()
		if !ok {
			return errJSON
		}
		return setText(name, v, r)
	}
	v, ok := s.raw()
	if !ok {
		return errJSON
	}
	return setNumber(name, v, r)
}

func setText(name, v string, r *Record) error {
	switch name {
	case "time":
		t, err := time.Parse(time.RFC3339Nano, v)
		if err != nil {
			return fmt.Errorf("time %.40q: write RFC 3339 such as 2026-01-02T15:04:05.000001Z", v)
		}
		r.Time = t.UTC()
	case "client_ip":
		a, err := netip.ParseAddr(v)
		if err != nil {
			return fmt.Errorf("client_ip %.40q is not an IP address", v)
		}
		r.Client = a.WithZone("")
	case "client": // until the first release
		return errors.New("client: renamed: write client_ip")
	case "decision":
		r.Decision = decisionOf(v)
	case "method":
		r.Method = v
	case "host":
		r.Host = v
	case "path":
		r.Path = v
	case "query":
		r.Query = v
	case "proto":
		r.Proto = v
	case "user":
		r.User = v
	case "plan":
		r.Plan = v
	case "route":
		r.Route = v
	case "upstream":
		r.Upstream = v
	case "rule":
		r.Rule = v
	case "request_id":
		r.ID = v
	case "queue_item":
		r.Item = v
	case "outcome":
		r.Outcome = v
	case "referer":
		r.Referer = v
	case "user_agent":
		r.UserAgent = v
	}
	return nil
}

func setNumber(name, v string, r *Record) error {
	var err error
	switch name {
	case "duration_seconds":
		r.Duration, err = seconds(v)
	case "delay_seconds":
		r.Delay, err = seconds(v)
	case "status":
		r.Status, err = strconv.Atoi(v)
	case "attempt":
		r.Attempt, err = strconv.Atoi(v)
	case "bytes_in":
		r.BytesIn, err = strconv.ParseInt(v, 10, 64)
	case "bytes_out":
		r.BytesOut, err = strconv.ParseInt(v, 10, 64)
	}
	if err != nil {
		return fmt.Errorf("%s %.40q is not a valid number", name, v)
	}
	return nil
}

func seconds(v string) (time.Duration, error) {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) > 1e9 {
		return 0, strconv.ErrRange
	}
	return time.Duration(math.Round(f*1e6)) * time.Microsecond, nil
}

// scanner reads the tokens of a line of JSON.
type scanner struct {
	s  string
	at int
}

func (s *scanner) space() {
	for s.at < len(s.s) && strings.IndexByte(" \t\r", s.s[s.at]) >= 0 {
		s.at++
	}
}

func (s *scanner) take(c byte) bool {
	if s.at < len(s.s) && s.s[s.at] == c {
		s.at++
		return true
	}
	return false
}

// text reads a string. Without escapes the result shares the memory of the line.
func (s *scanner) text() (string, bool) {
	if !s.take('"') {
		return "", false
	}
	from, plain := s.at, true
	for ; s.at < len(s.s); s.at++ {
		switch s.s[s.at] {
		case '\\':
			plain = false
			s.at++
		case '"':
			s.at++
			if plain {
				return s.s[from : s.at-1], true
			}
			var v string
			err := json.Unmarshal([]byte(s.s[from-1:s.at]), &v)
			return v, err == nil
		}
	}
	return "", false
}

// raw reads a value that is not a string, nested values included.
func (s *scanner) raw() (string, bool) {
	from, depth := s.at, 0
	for s.at < len(s.s) {
		switch s.s[s.at] {
		case '"':
			if _, ok := s.text(); !ok {
				return "", false
			}
			continue
		case '{', '[':
			depth++
		case '}', ']', ',':
			if depth == 0 {
				return strings.TrimRight(s.s[from:s.at], " \t"), s.at > from
			}
			if s.s[s.at] != ',' {
				depth--
			}
		}
		s.at++
	}
	return "", false
}
