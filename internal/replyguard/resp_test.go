package replyguard

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// testLimits are small, so that a few bytes exceed them.
var testLimits = respLimits{bytes: 1000, elements: 40}

// scan feeds a scanner in parts and returns the number of complete values.
func scan(limits respLimits, text []byte, part func() int) (values int, err error) {
	s := respScanner{limits: limits}
	for len(text) > 0 {
		b := text[:min(part(), len(text))]
		text = text[len(b):]
		for len(b) > 0 {
			n, ended, err := s.next(b)
			if err != nil {
				return values, err
			}
			if ended {
				values++
			}
			b = b[n:]
		}
	}
	return values, nil
}

// TestScanner checks that values are counted or rejected regardless of how they are split.
func TestScanner(t *testing.T) {
	good := map[string]int{
		"+OK\r\n": 1, "-ERR x\r\n:1\r\n": 2, "$-1\r\n": 1, "$0\r\n\r\n": 1, "$5\r\na\r\nbc\r\n": 1, "*-1\r\n": 1, "*0\r\n": 1, "+\r\n": 1,
		"*2\r\n$1\r\na\r\n*2\r\n:1\r\n:2\r\n_\r\n": 2, "%1\r\n+a\r\n*1\r\n:1\r\n": 1, "~2\r\n#t\r\n,1.5\r\n": 1,
		">2\r\n+message\r\n$1\r\nx\r\n": 1, "=7\r\ntxt:abc\r\n(12\r\n": 2, "*3\r\n:1\r\n": 0, "$3\r\nab": 0, "+O": 0, "!5\r\nERR x\r\n": 1,
		strings.Repeat("*1\r\n", maxDepth) + ":1\r\n": 1, "*40\r\n": 0, "%20\r\n": 0,
	}
	bad := []string{
		"\r\n", "x\r\n", "$x\r\n", "*\r\n", "$\r\n", "HTTP/1.1 400\r\n", strings.Repeat("+", maxLine+2), "$-9\r\n", "*-2\r\n", "%-1\r\n",
		"$-\r\n", "*1000000000\r\n", "*41\r\n", "%21\r\n", "$1001\r\n", "$9999999999999\r\n", "$99999999999999999999999\r\n",
		strings.Repeat("*1\r\n", maxDepth+1), "+a\n", "$1\n", "$1\r\r", "$1\r\nabc", "$1\r\na\rb", "$?\r\n", "*?\r\n", ";1\r\n", ".\r\n",
		"|1\r\n", "*1\r\n>1\r\n", "_x\r\n", "#\r\n", "#tt\r\n", ":\r\n", "$+1\r\n", "$1 \r\n", "$--1\r\n", "$1-\r\n",
		"*3\r\n$400\r\n" + strings.Repeat("a", 400) + "\r\n$400\r\n" + strings.Repeat("a", 400) + "\r\n$400\r\n" + strings.Repeat("a", 400) + "\r\n",
		"*30\r\n*11\r\n",
	}
	for size := 1; size <= 8; size++ {
		for text, want := range good {
			if got, err := scan(testLimits, []byte(text), func() int { return size }); got != want || err != nil {
				t.Errorf("%q in parts of %d: %d values and %v, want %d", text, size, got, err, want)
			}
		}
		for _, text := range bad {
			if _, err := scan(testLimits, []byte(text), func() int { return size }); err == nil {
				t.Errorf("%.40q in parts of %d: accepted", text, size)
			}
		}
	}
}

// TestScannerAllocates checks that scanning replies does not allocate.
func TestScannerAllocates(t *testing.T) {
	reply := []byte(strings.Repeat("$100\r\n"+strings.Repeat("x", 100)+"\r\n*2\r\n:1\r\n+OK\r\n", 10))
	s := respScanner{limits: testLimits}
	if n := testing.AllocsPerRun(100, func() {
		for b := reply; len(b) > 0; {
			n, _, err := s.next(b)
			if err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// bounded parses a value recursively, independently of respScanner, from the protocol's description. It returns the
// rest of the input, whether the value is complete, and whether it is within the limits so far.
type bounded struct{ elements int64 }

func (r *bounded) value(b []byte, depth int, all int) (rest []byte, complete, ok bool) {
	if len(b) == 0 {
		return nil, false, true
	}
	line, rest, found := bytes.Cut(b[1:], []byte("\n"))
	used := func(rest []byte) bool { return int64(all-len(rest)) <= testLimits.bytes }
	switch typ := b[0]; typ {
	case '+', '-', ':', '_', '#', ',', '(':
		if !found {
			return nil, false, len(line) <= maxLine && used(nil)
		}
		text, cr := bytes.CutSuffix(line, []byte("\r"))
		if !cr || len(line)+1 > maxLine || !used(rest) {
			return nil, true, false
		}
		switch typ {
		case '_':
			return rest, true, len(text) == 0
		case '#':
			return rest, true, len(text) == 1
		case ':':
			return rest, true, len(text) > 0
		}
		return rest, true, true
	case '$', '!', '=', '*', '%', '~', '>':
		if typ == '>' && depth > 0 {
			return nil, true, false
		}
		if !found {
			return nil, false, lengthPrefix(string(line)) && used(nil)
		}
		text, cr := bytes.CutSuffix(line, []byte("\r"))
		digits := strings.TrimPrefix(string(text), "-")
		n, err := strconv.ParseInt(string(text), 10, 64)
		if !cr || err != nil || digits == "" || digits[0] == '+' || text[0] == '+' || len(text) > maxDigits || !used(rest) {
			return nil, true, false
		}
		if strings.HasPrefix(string(text), "-") {
			return rest, true, n == -1 && (typ == '$' || typ == '*')
		}
		if typ == '$' || typ == '!' || typ == '=' {
			if n > testLimits.bytes {
				return nil, true, false
			}
			end := rest[min(int(n), len(rest)):]
			if int64(len(rest)) < n+2 {
				return nil, false, strings.HasPrefix("\r\n", string(end)) && used(nil)
			}
			return end[2:], true, string(end[:2]) == "\r\n" && used(end[2:])
		}
		if typ == '%' {
			n *= 2
		}
		if r.elements += n; r.elements > testLimits.elements || n > 0 && depth == maxDepth {
			return nil, true, false
		}
		for range n {
			if rest, complete, ok = r.value(rest, depth+1, all); !complete || !ok {
				return nil, complete, ok
			}
		}
		return rest, true, true
	}
	return nil, true, false
}

// lengthPrefix reports whether a line may continue as a length.
func lengthPrefix(line string) bool {
	body, cr := strings.CutSuffix(line, "\r")
	digits := strings.TrimPrefix(body, "-")
	if len(body) > maxDigits || strings.Trim(digits, "0123456789") != "" {
		return false
	}
	return !cr || digits != ""
}

// reference counts the values of a text.
func reference(b []byte) (values int, ok bool) {
	for len(b) > 0 {
		r := &bounded{}
		rest, complete, ok := r.value(b, 0, len(b))
		if !ok {
			return values, false
		}
		if !complete {
			return values, true
		}
		values++
		b = rest
	}
	return values, true
}

// FuzzScanner checks that the scanner accepts the same texts as reference, with the same number of values, regardless
// of how the bytes are split.
func FuzzScanner(f *testing.F) {
	for _, text := range []string{
		"+OK\r\n", "$5\r\na\r\nbc\r\n", "*2\r\n%1\r\n+a\r\n:1\r\n$-1\r\n", "$-9\r\n", "*1000000000\r\n", "*1\r\n*1\r\n*1\r\n*0\r\n",
		">1\r\n+a\r\n#t\r\n_\r\n", "=7\r\ntxt:abc\r\n", "$1000\r\n", "$00000000000000000001\r\na\r\n",
	} {
		f.Add([]byte(text), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		compare(t, text, rand.New(rand.NewPCG(seed, 1)))
	})
}

func compare(t *testing.T, text []byte, r *rand.Rand) {
	t.Helper()
	values, err := scan(testLimits, text, func() int { return 1 + r.IntN(7) })
	want, ok := reference(text)
	if (err == nil) != ok || ok && values != want {
		t.Fatalf("%.200q: %d values, %v; want %d, %v", text, values, err, want, ok)
	}
}

// TestScannerRandom runs FuzzScanner with nearly valid texts.
func TestScannerRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 20_000 {
		var b []byte
		for range 1 + r.IntN(4) {
			b = randomValue(r, b, 0)
		}
		if len(b) > 0 && r.IntN(2) == 0 {
			b[r.IntN(len(b))] = "\r\n$*%>-019:x"[r.IntN(12)]
		}
		if r.IntN(3) == 0 {
			b = b[:r.IntN(len(b)+1)]
		}
		if _, ok := reference(b); ok {
			accepted++
		}
		compare(t, b, r)
	}
	t.Logf("%d of 20000 accepted", accepted)
	if accepted < 2000 || accepted > 18_000 {
		t.Error("too few texts were accepted or rejected")
	}
}

func randomValue(r *rand.Rand, b []byte, depth int) []byte {
	switch typ := "+-:_#$!=*%~>"[r.IntN(12)]; typ {
	case '_':
		return append(b, "_\r\n"...)
	case '#':
		return append(b, "#t\r\n"...)
	case '$', '!', '=':
		n := r.IntN(30)
		return fmt.Appendf(b, "%c%d\r\n%s\r\n", typ, n, strings.Repeat("\n", n))
	case '*', '%', '~', '>':
		if depth > 0 && typ == '>' || depth > 3 {
			return append(b, ":1\r\n"...)
		}
		n := r.IntN(5)
		b = fmt.Appendf(b, "%c%d\r\n", typ, n)
		if typ == '%' {
			n *= 2
		}
		for range n {
			b = randomValue(r, b, depth+1)
		}
		return b
	default:
		return fmt.Appendf(b, "%c%d\r\n", typ, r.IntN(1000))
	}
}
