package ruletest

import (
	"fmt"
	"strings"
	"testing"
)

// An old name gets an error with its position and the new name, and no other error.
func TestRenamedNames(t *testing.T) {
	const current = "tests:\n  - name: a\n    requests:\n" +
		"      - {request: GET /, duration: 5s, actual_cost: 5, expect: allow}\n" +
		"      - {at: 5s, request: GET /, expect: reject}\n"
	if _, err := Parse("a_test.yaml", []byte(current)); err != nil {
		t.Fatal(err)
	}
	for old, name := range renamed {
		key, value, isValue := strings.Cut(old, ": ")
		found, written, msg := name+": ", key+": ", "requests: "+old
		if isValue {
			found, written, msg = name+"}", value+"}", old
		}
		before, after, ok := strings.Cut(current, found)
		if !ok {
			t.Errorf("%s: the file does not have %q", old, found)
			continue
		}
		line, column := strings.Count(before, "\n")+1, len(before)-strings.LastIndex(before, "\n")
		_, err := Parse("a_test.yaml", []byte(before+written+after))
		want := fmt.Sprintf("a_test.yaml:%d:%d: %s: renamed: write %s", line, column, msg, name)
		if isValue {
			key, value, _ := strings.Cut(msg, ": ")
			want = fmt.Sprintf("a_test.yaml:%d:%d: %s: the value %q is renamed: write %q", line, column, key, value, name)
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s: got\n%v\nwant\n%s", old, err, want)
		}
	}
}
