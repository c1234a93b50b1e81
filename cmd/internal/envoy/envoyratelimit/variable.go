package envoyratelimit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/suggest"
)

// variable is an environment variable.
type variable struct {
	name    string
	initial string // default value
	set     func(s *Settings, value string) error
	kind    string // description of valid values
	ignored string // why the variable is ignored; set is nil then
	own     bool   // a variable of Sluice, not of the reference
	differs string // difference from the reference
}

// ReadSettings returns the settings of an environment in the format of os.Environ. The error joins all errors. The warnings
// are about variables that are set and ignored. Neither contains texts, because they may be secret.
func ReadSettings(environ []string) (s *Settings, warnings []string, err error) {
	env := make(map[string]string, len(environ))
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env[name] = value
		}
	}
	s = &Settings{}
	var faults []error
	for i := range variables {
		v := &variables[i]
		value, given := env[v.name]
		if v.set == nil {
			if given && value != v.initial {
				warnings = append(warnings, fmt.Sprintf("%s is ignored: %s", v.name, v.ignored))
			}
			continue
		}
		if !given || value == "" && v.kind != kindText {
			value = v.initial
		}
		if err := v.set(s, value); err != nil {
			faults = append(faults, fmt.Errorf("%s%s: write %s%w", v.name, shown(v.kind, value), v.kind, err))
		}
	}
	faults = append(faults, s.complete(env)...)
	faults = append(faults, s.check()...)
	return s, append(warnings, unknown(env)...), errors.Join(faults...)
}

// shown returns the value in an error, or "" for kinds whose values may contain secrets.
func shown(kind, value string) string {
	if kind == kindText || kind == kindList || kind == kindPairs {
		return ""
	}
	return fmt.Sprintf(": is %.60q", value)
}

// Descriptions of valid values, for errors.
const (
	kindText     = "a string"
	kindBool     = "true or false"
	kindNumber   = "a whole number"
	kindDuration = "a duration such as 10s or 1h30m"
	kindList     = "strings separated by commas"
	kindPairs    = "name:value pairs separated by commas"
)

// valueError is the end of an error after the description of valid values. It never contains the value, which may be secret.
type valueError string

func (e valueError) Error() string { return string(e) }

func text(name, initial string, field func(*Settings) *string) variable {
	return variable{name: name, initial: initial, kind: kindText, set: func(s *Settings, value string) error {
		*field(s) = value
		return nil
	}}
}

// word returns a variable with a fixed list of values, in upper or lower case.
func word(name, initial string, words []string, field func(*Settings) *string) variable {
	kind := strings.Join(words, ", ")
	return variable{name: name, initial: initial, kind: kind, set: func(s *Settings, value string) error {
		for _, w := range words {
			if strings.EqualFold(w, value) {
				*field(s) = w
				return nil
			}
		}
		if best := suggest.Closest(value, words); best != "" {
			return valueError("; did you mean " + best + "?")
		}
		return valueError("")
	}}
}

func boolean(name, initial string, field func(*Settings) *bool) variable {
	return variable{name: name, initial: initial, kind: kindBool, set: func(s *Settings, value string) error {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return valueError("")
		}
		*field(s) = b
		return nil
	}}
}

func number[T int | int64](name, initial string, least, most T, field func(*Settings) *T) variable {
	return variable{name: name, initial: initial, kind: kindNumber, set: func(s *Settings, value string) error {
		n, err := strconv.ParseInt(value, 0, 64)
		if err != nil || n < int64(least) || n > int64(most) {
			return valueError(fmt.Sprintf(" between %d and %d", least, most))
		}
		*field(s) = T(n)
		return nil
	}}
}

func fraction[T float32 | float64](name, initial string, field func(*Settings) *T) variable {
	return variable{name: name, initial: initial, kind: "a number", set: func(s *Settings, value string) error {
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || f != f || f < 0 || f > 1e9 {
			return valueError(" such as 0.8")
		}
		*field(s) = T(f)
		return nil
	}}
}

func duration(name, initial string, field func(*Settings) *time.Duration) variable {
	return variable{name: name, initial: initial, kind: kindDuration, set: func(s *Settings, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return valueError("")
		}
		*field(s) = d
		return nil
	}}
}

// minInterval is the minimum interval of a loop. A shorter one would occupy a processor.
const minInterval = 100 * time.Millisecond

// interval returns a variable for the interval of a loop. Shorter ones than minInterval, except 0, are raised to it.
func interval(name, initial string, field func(*Settings) *time.Duration) variable {
	v := duration(name, initial, field)
	set := v.set
	v.set = func(s *Settings, value string) error {
		err := set(s, value)
		if d := field(s); *d > 0 {
			*d = max(*d, minInterval)
		}
		return err
	}
	return v
}

func list(name string, field func(*Settings) *[]string) variable {
	return variable{name: name, kind: kindList, set: func(s *Settings, value string) error {
		*field(s) = nil
		for part := range strings.SplitSeq(value, ",") {
			if part = strings.TrimSpace(part); part != "" {
				*field(s) = append(*field(s), part)
			}
		}
		return nil
	}}
}

func pairs(name string, field func(*Settings) *map[string]string) variable {
	return variable{name: name, kind: kindPairs, set: func(s *Settings, value string) error {
		m, err := parsePairs(value)
		*field(s) = m
		return err
	}}
}

func parsePairs(value string) (map[string]string, error) {
	m := make(map[string]string)
	if strings.TrimSpace(value) == "" {
		return m, nil
	}
	for part := range strings.SplitSeq(value, ",") {
		k, v, ok := strings.Cut(part, ":")
		if !ok || k == "" {
			return nil, valueError("")
		}
		m[k] = v
	}
	return m, nil
}

func ignored(name, initial, why string) variable {
	return variable{name: name, initial: initial, ignored: why}
}

// but sets the difference of a variable from the reference.
func but(differs string, v variable) variable {
	v.differs = differs
	return v
}

func ours(v variable) variable {
	v.own = true
	return v
}

// prefixes are the prefixes of the variables of the service. An unknown variable with such a prefix is probably a mistake.
var prefixes = []string{
	"REDIS_", "MEMCACHE_", "CONFIG_GRPC_", "GRPC_SERVER_", "GRPC_CLIENT_", "GRPC_MAX_", "XDS_CLIENT_", "RUNTIME_", "LIMIT_",
	"TRACING_", "STATSD_", "PROMETHEUS_", "SLUICE_", "USE_STATSD", "USE_DOG_STATSD", "USE_PROMETHEUS", "EXPIRATION_", "LOCAL_CACHE_",
}

// unknown returns warnings about unknown variables.
func unknown(env map[string]string) (warnings []string) {
	names := make([]string, len(variables))
	for i := range variables {
		names[i] = variables[i].name
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		prefixed := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		if !prefixed || slices.Contains(names, name) || ofKubernetes(name) {
			continue
		}
		if best := suggest.Closest(name, names); best != "" {
			warnings = append(warnings, fmt.Sprintf("%s is unknown: did you mean %s?", name, best))
			continue
		}
		warnings = append(warnings, name+" is unknown and ignored")
	}
	return warnings
}

// ofKubernetes reports whether Kubernetes sets the variable for a Service, such as REDIS_PORT_6379_TCP_ADDR for redis.
func ofKubernetes(name string) bool {
	return strings.Contains(name, "_SERVICE_HOST") || strings.Contains(name, "_SERVICE_PORT") ||
		strings.HasSuffix(name, "_PORT") || strings.Contains(name, "_PORT_")
}
