package memcachestore

import (
	"bufio"
	"bytes"
	"slices"
	"strings"
	"testing"
)

// FuzzReply checks that the parser, for any input, returns an error or a reply that matches the command, keeps its
// bounds, and reads no further than the reply.
func FuzzReply(f *testing.F) {
	for _, text := range []string{
		"HD ksluice:k O7\r\n", "EN ksluice:k O7\r\n", "NS ksluice:k O7\r\n", "EX c0 ksluice:k O7\r\n", "NF ksluice:k O7\r\n",
		"VA 3 c12 ksluice:k O7\r\nabc\r\n", "VA 3 c12 ksluice:k O7\r\nab", "VA 300000 c1 ksluice:k O7\r\n",
		"VA 2 c1 kother O7\r\nab\r\n",
		"MN\r\n", "ERROR\r\n", "CLIENT_ERROR bad command line format\r\n", "SERVER_ERROR out of memory storing object\r\n",
		"HD\r\n", "VA\r\n", "", "\r\n", "HD ksluice:k O7\r\nHD", strings.Repeat("k", 600),
	} {
		for v := verbGet; v <= verbRemove; v++ {
			f.Add([]byte(text), uint8(v))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, v uint8) {
		r := bufio.NewReaderSize(bytes.NewReader(text), 4096)
		c := command{verb: verb(v % 5), key: "sluice:k"}
		p, err := readReply(r, &c, 7)
		if err != nil {
			return
		}
		line, rest, ok := bytes.Cut(text, []byte("\r\n"))
		words := strings.Fields(string(line))
		switch {
		case !ok || !slices.Contains(words, "ksluice:k"):
			t.Fatalf("%q was accepted as a reply for sluice:k", text)
		case len(line) > maxLine || len(p.value) > maxValue:
			t.Fatalf("read %d bytes of the line and %d of the value", len(line), len(p.value))
		case (p.status == value) != (c.verb == verbGet && words[0] == "VA"):
			t.Fatalf("%q has status %d for verb %d", text, p.status, c.verb)
		case p.status == value && (p.cas == 0 || !bytes.HasPrefix(rest, append(slices.Clone(p.value), "\r\n"...))):
			t.Fatalf("%q has value %q and number %d", text, p.value, p.cas)
		}
	})
}
