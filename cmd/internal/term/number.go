package term

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"

	"github.com/spf13/cobra"
)

// numberFlag is the value of a flag for a whole number in a range. It implements pflag.Value.
type numberFlag[N int | int64] struct {
	to       *N
	min, max N
	advice   string
}

// AddNumber adds a flag for a whole number from min to max. The default may be outside the range: then it means "not given".
// The shorthand may be empty, and so may advice, which ends the error for other values.
func AddNumber[N int | int64](c *cobra.Command, to *N, name, shorthand string, value, min, max N, usage, advice string) {
	*to = value
	c.Flags().VarP(numberFlag[N]{to, min, max, advice}, name, shorthand, usage)
}

// String returns the number.
func (f numberFlag[N]) String() string {
	if f.to == nil { // because pflag calls String of a zero value to detect defaults
		return "0"
	}
	return strconv.FormatInt(int64(*f.to), 10)
}

// Set parses a number.
func (f numberFlag[N]) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n >= int64(f.min) && n <= int64(f.max) {
		*f.to = N(n)
		return nil
	}
	text := fmt.Sprintf("write a number from %d to %s", f.min, Bound(int64(f.max)))
	if f.advice != "" {
		text += "; " + f.advice
	}
	return errors.New(text)
}

// Type returns the name of the type for the help.
func (f numberFlag[N]) Type() string { return "number" }

// Bound formats the bound of a number. Long powers of two are readable only as such: 2^50.
func Bound(n int64) string {
	if n >= 1<<32 && n&(n-1) == 0 {
		return "2^" + strconv.Itoa(bits.TrailingZeros64(uint64(n)))
	}
	return strconv.FormatInt(n, 10)
}
