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

// Duration writes a duration as rule files have it: 7d, 1h30m, 500ms.
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

// durationFlag is a flag's value.
type durationFlag struct{ to *time.Duration }

// AddDuration adds a flag that takes a duration as rule files have it, in days and weeks too. The shorthand may be empty.
func AddDuration(c *cobra.Command, to *time.Duration, name, shorthand string, value time.Duration, usage string) {
	*to = value
	c.Flags().VarP(durationFlag{to}, name, shorthand, usage)
}

// String, Set and Type make it a flag's value.
func (f durationFlag) String() string {
	if f.to == nil { // of the library, to find out what a zero value looks like
		return "0s"
	}
	return Duration(*f.to)
}

// Set reads a duration.
func (f durationFlag) Set(s string) (err error) {
	if *f.to, err = strictyaml.ParseDuration(s); err != nil {
		return errors.New("write a duration, such as 500ms, 90s, 10m, 1h30m, 7d or 2w")
	}
	return nil
}

// Type is shown in the help.
func (f durationFlag) Type() string { return "duration" }
