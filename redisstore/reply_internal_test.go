package redisstore

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
)

// TestShortReply checks that replies of the script's fast paths are parsed, and others rejected.
func TestShortReply(t *testing.T) {
	const nonce = 12345
	stamp := string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(nonce)))
	for text, want := range map[string]string{
		stamp + "1011700000000.5.1990.-200303.":  "", // of three cells, the last one new
		stamp + "1011700000000.5.1990.20.30":     "",
		stamp + "1011700000000.5.1990.20":        "number of states is not 3",
		stamp + "1011700000000.5.1990.20.30.40":  "number of states is not 3",
		stamp + "1011700000000.5.1990.20.x":      `state "x" is not of this version: strconv.ParseInt: parsing "x": invalid syntax`,
		stamp + "101x.5.1.2.3":                   `"x.5.1.2.3" does not start with a time`,
		"12345678" + "1011700000000.5.1.2.3":     errMismatchedReply.Error(),
		stamp + "1":                              errMismatchedReply.Error(),
		stamp[:7]:                                errMismatchedReply.Error(),
		"":                                       errMismatchedReply.Error(),
		stamp + "1011700000000.5":                `"1700000000.5" does not start with a time`,
		stamp + "1011700000000.5.1990.20.1:2:34": "",
	} {
		t.Run("", func(t *testing.T) {
			rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(1_000_000)}))
			var takes []sluice.Take
			for _, key := range []string{"a", "b", "c"} {
				takes = append(takes, sluice.Take{Rule: rule, Key: key, Cost: 1})
			}
			c := sluice.Must(newCall(&namer{}, &group.Registry{}, sluice.Must(opsOf(takes))))
			c.place()
			r, err := c.readShort(text, nonce)
			switch {
			case want == "" && err != nil:
				t.Errorf("%q: %v", text, err)
			case want == "" && (r.verdicts != "101" || r.now != 1_700_000_000_000_005 || c.cells[0].state.ExpiresAt != 1+base || c.cells[0].state.Shape != 99):
				t.Errorf("%q: %+v, %+v", text, r, c.cells)
			case want != "" && (err == nil || err.Error() != want):
				t.Errorf("%q: %v, want %s", text, err, want)
			case want == errMismatchedReply.Error() && !errors.Is(err, sluice.ErrUnavailable):
				t.Errorf("%q: %v", text, err)
			}
		})
	}
}
