package logs

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
)

// A published trace is read as it is: CRLF, 100 ns, no client, an unfinished last line. Its first and last times and the
// sums of its columns were computed by another program (awk).
func TestTokenTrace(t *testing.T) {
	b, err := os.ReadFile("testdata/llm-requests.csv")
	if err != nil {
		t.Fatal(err)
	}
	all, m := read(t, Options{Columns: "cost=ContextTokens"}, string(b))
	var prompt, generated, mapped int64
	for i := range all {
		e := &all[i]
		p, ok1 := e.Cost("field:ContextTokens")
		g, ok2 := e.Cost("field:ContextTokens+GeneratedTokens")
		c, ok3 := e.Cost("cost")
		if !ok1 || !ok2 || !ok3 {
			t.Fatalf("request %d has no cost", i)
		}
		prompt, generated, mapped = prompt+p, generated+g-p, mapped+c
	}
	if bad, _ := m.Logs[0].Errors(); len(all) != 19366 || bad != 0 || mapped != prompt || prompt != promptTokens || generated != generatedTokens {
		t.Fatalf("%d requests, %d invalid, %d and %d tokens", len(all), bad, prompt, generated)
	}
	first, last := all[0].Record.Time, all[len(all)-1].Record.Time
	if first != time.Date(2023, 11, 16, 18, 15, 46, 680590000, time.UTC) || last != time.Date(2023, 11, 16, 19, 14, 8, 402527000, time.UTC) {
		t.Errorf("from %v to %v", first, last)
	}
	if m.Logs[0].Mapping() != "cost=ContextTokens, time=TIMESTAMP" || m.Logs[0].Resolution() != time.Microsecond {
		t.Errorf("mapping %s, resolution %v", m.Logs[0].Mapping(), m.Logs[0].Resolution())
	}
}

// lineAt returns a line of the combined format.
func lineAt(second int, path string) string {
	return fmt.Sprintf(`192.0.2.1 - - [%s] "GET /%s HTTP/1.1" 200 5`, time.Unix(int64(second), 0).UTC().Format(clfTime), path) + "\n"
}

func gzipped(t *testing.T, text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstandard(t *testing.T, text string) string {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(z.EncodeAll([]byte(text), nil))
}

// Compressed logs of several parts are read, and all logs are merged by time.
func TestCompressedAndMerged(t *testing.T) {
	all, m := read(
		t, Options{}, lineAt(2, "a")+lineAt(6, "b"), gzipped(t, lineAt(1, "c"))+gzipped(t, lineAt(5, "d")), zstandard(t, lineAt(3, "e"))+zstandard(t, lineAt(4, "f")),
	)
	var paths string
	for i := range all {
		paths += all[i].Record.Path
	}
	if paths != "/c/a/e/f/d/b" {
		t.Errorf("order %s", paths)
	}
	if n, total := m.Progress(); n == 0 || total != 0 {
		t.Errorf("%d of %d bytes", n, total)
	}
}

// A compressed log with a content that does not fit in memory is read in bounded memory.
func TestDecompressionBomb(t *testing.T) {
	size := 64 << 20
	if os.Getenv("SLUICE_SOAK") != "" {
		size = 4 << 30
	}
	zeros := strings.Repeat("\x00", 1<<20)
	for name, bomb := range map[string]string{"gzip": strings.Repeat(gzipped(t, zeros), size>>20), "zstd": strings.Repeat(zstandard(t, zeros), size>>20)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := opened(bomb, Options{})
		if err == nil {
			_, err = m.Next()
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; err == nil || !strings.Contains(err.Error(), "no line has a supported format") || used > 32<<20 {
			t.Errorf("%s: %d bytes allocated for %d: %v", name, used, len(bomb), err)
		}
	}
}

// Lines in any order are sorted, and the disorder is reported.
func TestDisorder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var lines []string
	for i := range 1000 {
		lines = append(lines, lineAt(i, "x"))
	}
	rng.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	lines = append([]string{lineAt(999, "x")}, append(lines, lineAt(0, "x"))...)
	all, m := read(t, Options{}, strings.Join(lines, ""))
	if len(all) != 1002 || !slices.IsSortedFunc(all, func(a, b Entry) int { return int(a.Micros - b.Micros) }) || m.Logs[0].Disorder != 999*time.Second {
		t.Errorf("%d requests, disorder %v", len(all), m.Logs[0].Disorder)
	}
}

// The lines that are buffered are bounded in bytes, however long they are.
func TestWindowBytes(t *testing.T) {
	line := lineAt(1, strings.Repeat("x", 100<<10))
	m, err := OpenAll([]Source{{Name: "a", Reader: &repeated{text: line, left: 5 * windowBytes / 4 / len(line)}}, {Name: "b", Reader: strings.NewReader(line)}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		if most := windowBytes/2 + len(line); m.Logs[0].size > most {
			t.Fatalf("%d bytes are buffered, want at most %d", m.Logs[0].size, most)
		}
	}
	if m.Logs[0].Requests < windowBytes/int64(len(line)) {
		t.Errorf("only %d requests", m.Logs[0].Requests)
	}
}

// repeated is a reader of a text, several times.
type repeated struct {
	text string
	at   int
	left int
}

func (r *repeated) Read(b []byte) (int, error) {
	if r.at == len(r.text) {
		r.at = 0
		r.left--
	}
	if r.left <= 0 {
		return 0, io.EOF
	}
	n := copy(b, r.text[r.at:])
	r.at += n
	return n, nil
}

// Resolution is the finest unit of the logged times, not of the computed starts.
func TestResolution(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`192.0.2.1 - - [22/Jan/2019:00:26:15 +0000] "GET / HTTP/1.1" 200 1 "-" "-" 0.123`:          time.Second,
		"time,ip\n2026-01-02T15:04:05Z,192.0.2.1\n2026-01-02T15:04:05.100Z,192.0.2.1":              time.Millisecond,
		"time,ip\n2026-01-02T15:04:05.0001Z,192.0.2.1":                                             time.Microsecond,
		"time,ip,duration_us\n1767366245,192.0.2.1,1\n1767366246,192.0.2.1,2":                      time.Second,
		"time,ip\n1767366245123,192.0.2.1\n":                                                       time.Millisecond,
		written(t, accesslog.JSON, accesslog.Record{Time: time.Unix(1, 5000), Path: "/"}):          time.Microsecond,
		"{\"time\":1767366245.5,\"ip\":\"192.0.2.1\"}\n{\"time\":1767366246,\"ip\":\"192.0.2.1\"}": time.Millisecond,
	} {
		if _, m := read(t, Options{}, text); m.Logs[0].Resolution() != want {
			t.Errorf("%s: resolution %v, want %v", text, m.Logs[0].Resolution(), want)
		}
	}
}

// A host name is a client with an address of its own, and its name can be found. Prefixes as short as 64 bits differ.
func TestHostNames(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		text.WriteString(strings.Replace(lineAt(i, "x"), "192.0.2.1", fmt.Sprintf("client%d.example.com", i), 1))
	}
	all, m := read(t, Options{}, text.String())
	seen := map[netip.Prefix]bool{}
	for i := range all {
		p := netip.PrefixFrom(all[i].Record.Client, 64).Masked()
		seen[p] = true
		if name := m.HostName(p); name != all[i].ClientName || name != fmt.Sprintf("client%d.example.com", i) {
			t.Errorf("%v is %q, want %q", p, name, all[i].ClientName)
		}
		if !netip.MustParsePrefix("200::/8").Contains(all[i].Record.Client) {
			t.Errorf("address %v", all[i].Record.Client)
		}
	}
	if len(seen) != 1000 || m.Logs[0].Hosts != 1000 {
		t.Errorf("%d clients, %d counted", len(seen), m.Logs[0].Hosts)
	}
}

// The forwarding header of trusted proxies only is used, from right to left.
func TestTrustedProxies(t *testing.T) {
	line := func(peer, list string) string {
		return strings.Replace(lineAt(1, "x"), "192.0.2.1", peer, 1)[:len(lineAt(1, "x"))-len("192.0.2.1")+len(peer)-1] + ` "-" "curl" "` + list + `"` + "\n"
	}
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, c := range []struct{ peer, list, want string }{
		{"10.0.0.1", "203.0.113.9, 198.51.100.7", "198.51.100.7"},
		{"10.0.0.1", "203.0.113.9, 10.0.0.2", "203.0.113.9"},
		{"10.0.0.1", "-", "10.0.0.1"},
		{"192.0.2.1", "203.0.113.9", "192.0.2.1"},
	} {
		all, _ := read(t, Options{TrustedProxies: trusted}, line(c.peer, c.list))
		forwarded, err := ParseKey("forwarded")
		if err != nil {
			t.Fatal(err)
		}
		key, ok := forwarded(&all[0])
		if got := all[0].Record.Client.String(); got != c.want || ok != (c.want != c.peer) || ok && key != c.want {
			t.Errorf("%+v: got %s, key %q", c, got, key)
		}
		if all, _ = read(t, Options{}, line(c.peer, c.list)); all[0].Record.Client.String() != c.peer {
			t.Errorf("%+v without proxies: %s", c, all[0].Record.Client)
		}
	}
}

const (
	promptTokens    = 22361870
	generatedTokens = 4088665
)
