package resp_test

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

func writeArray(w io.Writer, args ...string) {
	fmt.Fprintf(w, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(w, "$%d\r\n%s\r\n", len(a), a)
	}
}

// five is a reply to CL.THROTTLE.
type five [5]int64

// readFive parses a reply to CL.THROTTLE.
func readFive(r *bufio.Reader) (f five, err error) {
	head, err := r.ReadString('\n')
	if err != nil {
		return f, err
	}
	if head != "*5\r\n" {
		return f, fmt.Errorf("got %q", head)
	}
	for i := range f {
		line, err := r.ReadString('\n')
		if err != nil {
			return f, err
		}
		if f[i], err = strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(line, ":"), "\r\n"), 10, 64); err != nil {
			return f, err
		}
	}
	return f, nil
}
