package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluiceproject/sluice/internal/suggest"
)

// wrongFlag adds advice to the error for an invalid flag: what to write, the most similar flag, or a reference to the help.
func wrongFlag(c *cobra.Command, err error) error {
	list := c.CommandPath() + " --help lists its flags"
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var bare *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown):
	case errors.As(err, &invalid):
		return fmt.Errorf("%s %s: %s", flagName(invalid.GetFlag()), shownValue(invalid.GetValue()), valueAdvice(invalid))
	case errors.As(err, &bare):
		return fmt.Errorf("%s needs a value: %s", flagName(bare.GetFlag()), list)
	default:
		return fmt.Errorf("%w: %s", err, list)
	}
	name := unknown.GetSpecifiedName()
	if unknown.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("unknown flag -%s: %s", name, list)
	}
	switch now, renamed := renamedFlag(c, name); {
	case now != "":
		return fmt.Errorf("unknown flag --%s: renamed: write --%s", name, now)
	case renamed: // the most similar flag would be another one
	default:
		if best := similarFlag(c, name); best != "" {
			return fmt.Errorf("unknown flag --%s: did you mean --%s?", name, best)
		}
	}
	return fmt.Errorf("unknown flag --%s: %s", name, list)
}

// similarFlag returns the flag of c that is most similar to name, or the only one that begins with it, or "".
func similarFlag(c *cobra.Command, name string) string {
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return suggest.ClosestOrLonger(name, names)
}

// flagName returns the shortest form of a flag.
func flagName(f *pflag.Flag) string {
	if f.Shorthand != "" {
		return "-" + f.Shorthand
	}
	return "--" + f.Name
}

// shownValue quotes a value unless it is a number.
func shownValue(value string) string {
	if strings.Trim(value, "+-.0123456789") == "" && value != "" {
		return value
	}
	return strconv.Quote(value)
}

// valueAdvice says what to write instead of an invalid value. The errors of pflag's own types are about Go.
func valueAdvice(e *pflag.InvalidValueError) string {
	switch f := e.GetFlag(); f.Value.Type() {
	case "bool":
		return fmt.Sprintf("write --%s or --%[1]s=false", f.Name)
	case "int", "int64":
		return "write a whole number, such as 100"
	case "uint64":
		return "write a whole number of at least 0, such as 100"
	case "float64":
		return "write a number, such as 100 or 0.5"
	}
	return e.Unwrap().Error()
}
