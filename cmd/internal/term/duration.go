package term

import (
	"strconv"
	"strings"
	"time"
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
