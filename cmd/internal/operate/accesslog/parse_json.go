package accesslog

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/jsonline"
)

// ParseJSON reads a line that a [Log] or a later version of it wrote: unknown fields are ignored.
func ParseJSON(line string, r *Record) error {
	s := jsonline.New(line)
	err := s.Object(func(name string) error {
		if s.Next() == '"' {
			v, ok := s.Text()
			if !ok {
				return jsonline.ErrObject
			}
			return setText(name, v, r)
		}
		v, ok := s.Raw()
		if !ok {
			return jsonline.ErrObject
		}
		return setNumber(name, v, r)
	})
	if err == nil {
		err = s.End()
	}
	switch {
	case err != nil:
		return err
	case r.Time.IsZero():
		return errors.New(`"time" is missing`)
	case r.Method == "" && r.Path == "":
		return errors.New(`"method" and "path" are missing`)
	}
	return nil
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
	case "server":
		r.Server = v
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
