package redisstore

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
)

// forge returns a reply with the nonce of the call and random content.
func forge(r *rand.Rand, c *call, nonce int64) value {
	extremes := []int64{
		0, 1, -1, 9, 10, 99, 1 << 20, 1 << 32, 1<<53 - 1, 1 << 53, 1 << 62, math.MaxInt64, math.MinInt64, math.MinInt64 + 1, time.Now().UnixMicro(),
		time.Now().UnixMicro() + 1_000_000,
	}
	number := func() int64 {
		if r.IntN(3) == 0 {
			return r.Int64() - r.Int64()
		}
		return extremes[r.IntN(len(extremes))]
	}
	state := func() string {
		switch r.IntN(8) {
		case 0:
			return ""
		case 6: // with marks
			b := []byte(letterMarks)
			for i := range 3 * (1 + r.IntN(34)) {
				n := uint64(number())
				if r.IntN(20) > 0 {
					n = uint64(i) << r.IntN(50)
				}
				b = append(b, binary.LittleEndian.AppendUint64(nil, n)[:markBytes]...)
			}
			return string(b[:len(b)-r.IntN(50)/49])
		case 1:
			return strconv.FormatInt(number(), 10)
		case 2:
			return fmt.Sprintf("%d:%d", number(), number())
		case 3:
			return fmt.Sprintf("%d:%d:%d", number(), number(), number())
		case 4:
			return fmt.Sprintf("%d:%d:%d:%d", number(), number(), number(), number())
		case 5:
			b := make([]byte, 9+sliceBytes*(1+r.IntN(12)))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return string(b)
		}
		return "x"
	}
	verdicts := ""
	for range len(c.ops) + r.IntN(20)/19 {
		verdicts += string("01"[r.IntN(2)])
	}
	if r.IntN(2) == 0 {
		text := string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(nonce)))) + verdicts
		text += fmt.Sprintf("%d.%d", number(), number())
		for range c.cells {
			text += "." + state()
		}
		return value{kind: isText, text: text}
	}
	any := func() value {
		switch r.IntN(4) {
		case 0:
			return value{}
		case 1:
			return value{kind: isNumber, number: number()}
		case 2:
			return value{kind: isList, list: []value{{kind: isNumber, number: number()}}}
		}
		return value{kind: isText, text: state()}
	}
	list := value{kind: isList}
	for range len(c.keys) {
		list.list = append(list.list, any())
	}
	logs := value{kind: isList}
	for range r.IntN(20) {
		logs.list = append(logs.list, value{kind: isNumber, number: number()})
	}
	all := []value{
		{kind: isNumber, number: nonce},
		{kind: isNumber, number: number()},
		{kind: isText, text: verdicts},
		list, logs,
		{kind: isText, text: "id"},
		{kind: isNumber, number: number()},
	}
	if r.IntN(8) == 0 {
		all[r.IntN(len(all))] = any()
	}
	return value{kind: isList, list: all[:r.IntN(len(all)+1)]}
}

// forgedRules returns a rule for every algorithm.
func forgedRules() (rules []*sluice.Rule) {
	for i, l := range []sluice.Limit{
		sluice.PerMinute(5), sluice.PerSecond(7),
		{Count: 5, Window: time.Minute, Algorithm: sluice.FixedWindow},
		{Count: 5, Window: time.Minute, Algorithm: sluice.FixedWindow, Align: sluice.AlignFirstRequest},
		{Count: 5, Window: time.Minute, Algorithm: sluice.SlidingWindowCounter},
		{Count: 5, Window: time.Minute, Algorithm: sluice.SlidingWindowLog},
		{Count: 5, Window: time.Minute, Algorithm: sluice.LeakyBucket},
		sluice.Concurrent(3),
	} {
		rules = append(rules, sluice.Must(sluice.NewRule(sluice.Rule{Name: "r" + strconv.Itoa(i), Limit: l})))
	}
	return rules
}

// FuzzForgedReply checks that a reply with the right nonce and any content results in an error or an answer, never in a
// panic.
func FuzzForgedReply(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	rules := forgedRules()
	f.Fuzz(func(t *testing.T, seed uint64) {
		forgeries(t, rand.New(rand.NewPCG(seed, 0)), rules, 100)
	})
}

// TestForgedReply runs FuzzForgedReply on a number of random replies.
func TestForgedReply(t *testing.T) {
	forgeries(t, rand.New(rand.NewPCG(1, 1)), forgedRules(), 20_000)
}

func forgeries(t *testing.T, r *rand.Rand, rules []*sluice.Rule, n int) {
	t.Helper()
	for range n {
		var takes []sluice.Take
		for range 1 + r.IntN(3) {
			take := sluice.Take{Rule: rules[r.IntN(len(rules))], Key: string(rune('a' + r.IntN(2))), Cost: r.Int64N(4), Settles: r.IntN(2) == 0}
			if r.IntN(3) == 0 {
				take.Receipt, take.Cost, take.Charged = r.Int64N(1<<50), 2-r.Int64N(4), r.Int64N(4)
			}
			takes = append(takes, take)
		}
		c, err := newCall(&namer{}, &group.Registry{}, sluice.Must(opsOf(takes)))
		if err != nil {
			continue
		}
		c.place()
		read, err := c.read(forge(r, c, 77), 77)
		if err != nil || read.verdicts == staleVerdict {
			continue
		}
		_ = c.replay(read)
	}
}
