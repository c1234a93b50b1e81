package step

import "strconv"

var kindNames = [...]string{"", "bucket", "interval_bucket", "window", "sliding_counter", "sub_windows_", "sliding_log", "concurrency"}

// Name is the kind in words, for people. The number of sub-windows is part of it: states of different numbers have
// nothing in common.
func (k Kind) Name(slices int) string {
	switch {
	case int(k) >= len(kindNames):
		return ""
	case k == Slices:
		return kindNames[k] + strconv.Itoa(slices)
	}
	return kindNames[k]
}
