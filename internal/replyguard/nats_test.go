package replyguard

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// natsAccepts parses a text line by line, independently of natsScanner, from the protocol's description.
func natsAccepts(b string) bool {
	for b != "" {
		line, rest, found := strings.Cut(b, "\n")
		if !found {
			return len(b) <= maxNATSLine
		}
		text, cr := strings.CutSuffix(line, "\r")
		if !cr || len(line)+1 > maxNATSLine {
			return false
		}
		op, args, _ := strings.Cut(text, " ")
		least := 0
		switch op {
		case "INFO", "PING", "PONG", "+OK", "-ERR":
			b = rest
			continue
		case "MSG":
			least = 3
		case "HMSG":
			least = 4
		default:
			return false
		}
		f := strings.FieldsFunc(args, func(r rune) bool { return r == ' ' })
		if len(f) != least && len(f) != least+1 {
			return false
		}
		number := func(s string) (int, bool) {
			n, err := strconv.Atoi(s)
			return n, err == nil && s[0] != '+' && s[0] != '-' && len(s) <= maxDigits
		}
		size, ok := number(f[len(f)-1])
		_, subscription := number(f[1])
		if !ok || !subscription || size > MaxNATSMessage {
			return false
		}
		if least == 4 {
			if headers, ok := number(f[len(f)-2]); !ok || headers > size {
				return false
			}
		}
		if len(rest) < size+2 {
			return len(rest) <= size || strings.HasPrefix("\r\n", rest[size:])
		}
		if rest[size:size+2] != "\r\n" {
			return false
		}
		b = rest[size+2:]
	}
	return true
}

func natsScan(text string, part func() int) error {
	var s natsScanner
	for b := []byte(text); len(b) > 0; {
		n := min(part(), len(b))
		if err := s.feed(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

var natsTexts = []string{
	"INFO {}\r\n", "PING\r\nPONG\r\n+OK\r\n-ERR 'x'\r\n", "MSG a 1 5\r\nhello\r\nPING\r\n", "MSG a 1 reply 0\r\n\r\n", "HMSG a 1 4 9\r\nhead\nbody\r\n",
	"HMSG a 1 r 0 2\r\nxx\r\n", "MSG a 1 107374182400\r\n", "MSG a 1 18446744073709551617\r\n", "MSG a 1 -1\r\n", "MSG a 1\r\n", "MSG a b c d e f 1\r\n",
	"HMSG a 1 9 4\r\n", "MSG a 1 1\r\nabc", "MSG a -1 1\r\n", "PING\n", "msg a 1 1\r\na\r\n", "MSG a 1 67108864\r\n", "MSG a 1 67108865\r\n", "\r\n", "MSG  a  1  1\r\na\r\n",
}

// FuzzNATS checks that the scanner accepts the same texts as natsAccepts, regardless of how the bytes are split.
func FuzzNATS(f *testing.F) {
	for _, text := range natsTexts {
		f.Add(text, uint64(1))
	}
	f.Fuzz(compareNATS)
}

func compareNATS(t *testing.T, text string, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	if err := natsScan(text, func() int { return 1 + r.IntN(9) }); (err == nil) != natsAccepts(text) {
		t.Errorf("%.200q: %v, want accepted: %v", text, err, natsAccepts(text))
	}
}

// TestNATSRandom runs FuzzNATS with nearly valid texts.
func TestNATSRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	accepted := 0
	for i := range 20_000 {
		b := ""
		for range 1 + r.IntN(4) {
			b += natsTexts[r.IntN(6)]
		}
		if r.IntN(2) == 0 {
			b += natsTexts[r.IntN(len(natsTexts))]
		}
		raw := []byte(b)
		if r.IntN(2) == 0 {
			raw[r.IntN(len(raw))] = "\r\n 0199MHx-"[r.IntN(10)]
		}
		if natsAccepts(string(raw)) {
			accepted++
		}
		compareNATS(t, string(raw), uint64(i))
	}
	t.Logf("%d of 20000 accepted", accepted)
	if accepted < 2000 || accepted > 18_000 {
		t.Error("too few texts were accepted or rejected")
	}
	if err := natsScan("INFO "+strings.Repeat("x", maxNATSLine), func() int { return 1000 }); err == nil {
		t.Error("an endless line was accepted")
	}
}

// TestNATSAllocates checks that scanning messages does not allocate.
func TestNATSAllocates(t *testing.T) {
	b := bytes.Repeat([]byte("MSG subject.of.it 12 reply.to 100\r\n"+strings.Repeat("x", 100)+"\r\n"), 10)
	var s natsScanner
	if n := testing.AllocsPerRun(100, func() {
		if err := s.feed(b); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestNATSDial checks that the first line is passed on, and that later messages that exceed a bound are rejected.
func TestNATSDial(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	says := make(chan string, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, <-says)
		}
	}()
	d := &NATS{Context: t.Context(), Timeout: 5 * time.Second, TLS: &tls.Config{}}
	const info = `INFO {"max_payload":10}` + "\r\n"
	for text, want := range map[string]string{
		info + "PING\r\nMSG a 1 2\r\nxx\r\n": "", info + "MSG a 1 107374182400\r\n": "message of 107374182400 bytes",
		`INFO {"tls_required":true}` + "\r\nPING\r\n": "bytes after INFO, before TLS",
	} {
		says <- text
		c, err := d.Dial("tcp", l.Addr().String())
		got := make([]byte, len(text))
		if err == nil {
			if _, err = io.ReadFull(c, got); err == nil && string(got) != text {
				t.Errorf("%q instead of %q", got, text)
			}
			c.Close()
		}
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "NATS "+l.Addr().String()) || !strings.Contains(fmt.Sprint(err), want)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
