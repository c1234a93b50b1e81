package term

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

const day = 24 * time.Hour

// Duration formats a duration like rule files do: 7d, 1h30m, 500ms.
func Duration(d time.Duration) string {
	s := ""
	if d >= day {
		s = strconv.FormatInt(int64(d/day), 10) + "d"
		if d %= day; d == 0 {
			return s
		}
	}
	rest := d.String()
	if strings.HasSuffix(rest, "m0s") { // 1h0m0s
		rest = strings.TrimSuffix(rest, "0s")
	}
	if strings.HasSuffix(rest, "h0m") {
		rest = strings.TrimSuffix(rest, "0m")
	}
	return s + rest
}

// durationFlag is the value of a flag for a duration. It implements pflag.Value.
type durationFlag struct{ to *time.Duration }

// AddDuration adds a flag for a duration in the format of rule files, which has days and weeks. The shorthand may be empty.
func AddDuration(c *cobra.Command, to *time.Duration, name, shorthand string, value time.Duration, usage string) {
	*to = value
	c.Flags().VarP(durationFlag{to}, name, shorthand, usage)
	if value == 0 {
		c.Flags().Lookup(name).DefValue = "" // the help shows no default
	}
}

// String returns the duration in the format of Duration.
func (f durationFlag) String() string {
	if f.to == nil { // because pflag calls String of a zero value to detect defaults
		return "0s"
	}
	return Duration(*f.to)
}

// Set parses a duration.
func (f durationFlag) Set(s string) (err error) {
	if *f.to, err = strictyaml.ParseDuration(s); err != nil {
		return errors.New("write a duration, such as 500ms, 90s, 10m, 1h30m, 7d or 2w")
	}
	return nil
}

// Type returns the name of the type for the help.
func (f durationFlag) Type() string { return "duration" }
