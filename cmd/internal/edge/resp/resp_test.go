package resp_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/resp"
	"github.com/sluiceproject/sluice/memstore"
)

// start runs a server until the test ends.
func start(t testing.TB, store sluice.Store, cfg resp.Config) (s *resp.Server, address string) {
	t.Helper()
	limiter, err := sluice.NewWithRules(store, nil, sluice.WithStoreTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return startServer(t, limiter, cfg)
}

func startWith(t testing.TB, limiter *sluice.Limiter, cfg resp.Config) (address string) {
	t.Helper()
	_, address = startServer(t, limiter, cfg)
	return address
}

func startServer(t testing.TB, limiter *sluice.Limiter, cfg resp.Config) (s *resp.Server, address string) {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s, err := resp.New(limiter, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Drain(ctx) // open connections do not matter
		<-served
	})
	return s, l.Addr().String()
}

func dial(t testing.TB, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// say sends text and returns all replies until the server closes the connection.
func say(t testing.TB, address, text string) string {
	t.Helper()
	c := dial(t, address)
	go func() {
		_, _ = io.WriteString(c, text)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	b, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("%.60q: %v", text, err)
	}
	return string(b)
}

// array encodes a command as clients do.
func array(args ...string) string {
	var b strings.Builder
	writeArray(&b, args...)
	return b.String()
}

func password(text string) func() [32]byte {
	return func() [32]byte { return sha256.Sum256([]byte(text)) }
}

// Commands and their replies; of an error reply a prefix is enough.
func TestCommands(t *testing.T) {
	const fill = "CL.THROTTLE k 1 1 60\n"
	for name, tt := range map[string]struct{ say, want string }{
		"ping":                   {"PING\nping hello\nPING a b\n", "+PONG\r\n$5\r\nhello\r\n-ERR wrong number of arguments for 'ping' command\r\n"},
		"quotes":                 {"echo \"a b\" \r\necho 'c d'\necho ''\n", "$3\r\na b\r\n$3\r\nc d\r\n$0\r\n\r\n"},
		"echo":                   {array("ECHO", "a\r\nb\x00"), "$5\r\na\r\nb\x00\r\n"},
		"empty lines":            {"\r\n\n*0\r\n*-1\r\n  \nPING\n", "+PONG\r\n"},
		"select":                 {"SELECT 0\nSELECT 1\nSELECT\n", "+OK\r\n-ERR DB index is out of range: the only database is 0\r\n-ERR wrong number of arguments for 'select' command\r\n"},
		"quit":                   {"QUIT\nPING\n", "+OK\r\n"},
		"reset":                  {"HELLO 3\nRESET\nCOMMAND DOCS\n", hello(3, 1) + "+RESET\r\n*0\r\n"},
		"client":                 {"CLIENT SETNAME a\nCLIENT SETINFO LIB-NAME b\nCLIENT ID\n", "+OK\r\n+OK\r\n:1\r\n"},
		"unknown part of client": {"CLIENT TRACKING ON\nCLIENT\nCLIENT ID 1\n", "-ERR unknown subcommand \"TRACKING\" of CLIENT: the subcommands are SETNAME, SETINFO and ID\r\n-ERR wrong number of arguments for 'client' command\r\n-ERR wrong number of arguments for 'client|id' command\r\n"},
		"command":                {"COMMAND\nCOMMAND COUNT\nCOMMAND DOCS\nCOMMAND INFO x\n", "*0\r\n:10\r\n*0\r\n-ERR unknown subcommand \"INFO\" of COMMAND: the subcommands are COUNT and DOCS\r\n"},
		"command, RESP3":         {"HELLO 3\nCOMMAND DOCS x\n", hello(3, 1) + "%0\r\n"},
		"hello":                  {"HELLO\nHELLO 3 SETNAME x\nHELLO\nHELLO 2\n", hello(2, 1) + hello(3, 1) + hello(3, 1) + hello(2, 1)},
		"hello to others":        {"HELLO 4\nHELLO x\nHELLO 3 FOO\nHELLO 3 AUTH a\n", "-NOPROTO unsupported protocol version\r\n-ERR Protocol version is not an integer or out of range\r\n-ERR Syntax error in HELLO option \"FOO\"\r\n-ERR Syntax error in HELLO option \"AUTH\"\r\n"},
		"auth without password":  {"AUTH x\nAUTH default x\nAUTH other x\nAUTH\n", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n+OK\r\n-WRONGPASS invalid username-password pair or user is disabled.\r\n-ERR wrong number of arguments for 'auth' command\r\n"},
		"unknown":                {array("GET\r\n+OK", "a"), "-ERR unknown command \"GET\\r\\n+OK\": the commands are CL.THROTTLE, PING"},

		"throttle":           {fill + fill + fill, "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n*5\r\n:0\r\n:2\r\n:0\r\n:-1\r\n:120\r\n*5\r\n:1\r\n:2\r\n:0\r\n:60\r\n:120\r\n"},
		"throttle, RESP3":    {"HELLO 3\n" + fill, hello(3, 1) + "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n"},
		"any case":           {"cl.Throttle k 1 1 60\n", "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n"},
		"too much":           {"CL.THROTTLE k 1 1 60 3\n", "*5\r\n:1\r\n:2\r\n:2\r\n:-1\r\n:0\r\n"},
		"peek":               {fill + fill + "CL.THROTTLE k 1 1 60 0\n", "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n*5\r\n:0\r\n:2\r\n:0\r\n:-1\r\n:120\r\n*5\r\n:0\r\n:2\r\n:0\r\n:-1\r\n:120\r\n"},
		"odd keys":           {array("CL.THROTTLE", "", "0", "1", "60") + array("CL.THROTTLE", "\x00\r\n", "0", "1", "60"), "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n"},
		"too few":            {"CL.THROTTLE k 1 1\n", "-ERR wrong number of arguments for 'cl.throttle' command: write CL.THROTTLE key max_burst count period [quantity]\r\n"},
		"too many":           {"CL.THROTTLE k 1 1 1 1 1\n", "-ERR wrong number of arguments for 'cl.throttle' command"},
		"no number":          {"CL.THROTTLE k 1 1 x\n", "-ERR period is not an integer or out of range: write CL.THROTTLE"},
		"a fraction":         {"CL.THROTTLE k 1 1.5 1\n", "-ERR count is not an integer"},
		"nothing":            {array("CL.THROTTLE", "k", "", "1", "1"), "-ERR max_burst is not an integer"},
		"signs":              {"CL.THROTTLE k +1 +1 +60\nCL.THROTTLE k - 1 1\n", "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n-ERR max_burst is not an integer"},
		"more than an int":   {"CL.THROTTLE k 1 1 1 99999999999999999999\n", "-ERR quantity is not an integer or out of range"},
		"negative burst":     {"CL.THROTTLE k -1 1 1\n", "-ERR max_burst -1 is not between 0 and 1125899906842623\r\n"},
		"no count":           {"CL.THROTTLE k 1 0 1\n", "-ERR count 0 is less than 1\r\n"},
		"no period":          {"CL.THROTTLE k 1 1 0\n", "-ERR period 0 is not between 1 and 31622400 seconds\r\n"},
		"long period":        {"CL.THROTTLE k 1 1 31622401\n", "-ERR period 31622401 is not between 1 and 31622400 seconds\r\n"},
		"fast":               {"CL.THROTTLE k 1 20000000 1\n", "-ERR 20000000 per 1s is more than 10 million a second\r\n"},
		"large burst":        {"CL.THROTTLE k 1000000 1 31622400\n", "-ERR a burst of 1000001 at 1 per 8784h0m0s takes more than 100 years to refill: use a smaller one\r\n"},
		"negative quantity":  {"CL.THROTTLE k 1 1 1 -1\n", "-ERR quantity -1 is not between 0 and 1125899906842624\r\n"},
		"long key":           {array("CL.THROTTLE", strings.Repeat("k", 1025), "1", "1", "1") + "PING\n", "-ERR the key has 1025 bytes: the maximum is 1024\r\n+PONG\r\n"},
		"not too long a key": {array("CL.THROTTLE", strings.Repeat("k", 1024), "1", "1", "60"), "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n"},

		"many arguments":     {"*17\r\n", "-ERR Protocol error: invalid multibulk length: the maximum is 16 arguments\r\n"},
		"many words":         {strings.Repeat("a ", 17) + "\n", "-ERR Protocol error: invalid multibulk length: the maximum is 16 arguments\r\n"},
		"large bulk":         {"*1\r\n$8193\r\n", "-ERR Protocol error: invalid bulk length: the maximum is 8 KiB\r\n"},
		"huge bulk":          {"*1\r\n$9999999999\r\n", "-ERR Protocol error: invalid bulk length: the maximum is 8 KiB\r\n"},
		"endless number":     {"*" + strings.Repeat("1", 11), "-ERR Protocol error: invalid length: expected digits and CRLF\r\n"},
		"null bulk":          {"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length: the maximum is 8 KiB\r\n"},
		"nested":             {"*1\r\n*1\r\n", "-ERR Protocol error: expected '$', got '*'\r\n"},
		"bulk without end":   {"*1\r\n$4\r\nPINGxx", "-ERR Protocol error: expected CRLF after a bulk string\r\n"},
		"no number at all":   {"*\r\n", "-ERR Protocol error: invalid length: expected digits and CRLF\r\n"},
		"a line without end": {strings.Repeat("a", 8192), "-ERR Protocol error: command too large: the maximum is 8 KiB\r\n"},
		"large together":     {"*3\r\n" + strings.Repeat("$3000\r\n"+strings.Repeat("a", 3000)+"\r\n", 3), "-ERR Protocol error: command too large: the maximum is 8 KiB\r\n"},
		"quotes without end": {"ECHO \"a\n", "-ERR Protocol error: unbalanced quotes in request\r\n"},
		"quotes in words":    {"ECHO \"a\"b\n", "-ERR Protocol error: unbalanced quotes in request\r\n"},
		"HTTP":               {"GET / HTTP/1.1\r\nHost: x\r\n\r\nCL.THROTTLE k 1 1 1\r\n", "-ERR unknown command \"GET\": the commands are CL.THROTTLE, PING, ECHO, AUTH, HELLO, SELECT, CLIENT, COMMAND, RESET and QUIT\r\n-ERR Protocol error: HTTP is not supported\r\n"},
		"a form":             {"POST / HTTP/1.1\r\n", "-ERR Protocol error: HTTP is not supported\r\n"},
		"half a command":     {"PING\n*1\r\n$4\r\nPI", "+PONG\r\n"},
		"answers before":     {"PING\n*x\r\nPING\n", "+PONG\r\n-ERR Protocol error: invalid length: expected digits and CRLF\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			_, address := start(t, memstore.New(), resp.Config{})
			if got := say(t, address, tt.say); !matches(got, tt.want) {
				t.Errorf("sent %.80q\ngot  %q\nwant %q", tt.say, got, tt.want)
			}
		})
	}
}

// matches compares line by line. A wanted error line may be a prefix.
func matches(got, want string) bool {
	g, w := strings.SplitAfter(got, "\r\n"), strings.SplitAfter(want, "\r\n")
	if !strings.HasSuffix(want, "\r\n") {
		w = append(w, "")
	}
	if len(g) != len(w) {
		return false
	}
	for i := range g {
		if g[i] != w[i] && !(strings.HasPrefix(w[i], "-") && strings.HasPrefix(g[i], w[i])) {
			return false
		}
	}
	return true
}

func hello(proto, id int) string {
	begin := "*14\r\n"
	if proto == 3 {
		begin = "%7\r\n"
	}
	return begin + "$6\r\nserver\r\n$6\r\nsluice\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:" + string(rune('0'+proto)) +
		"\r\n$2\r\nid\r\n:" + string(rune('0'+id)) + "\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
}

// An unauthenticated client can only authenticate or disconnect.
func TestAuth(t *testing.T) {
	const no, wrong = "-NOAUTH Authentication required.\r\n", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	for name, tt := range map[string]struct{ say, want string }{
		"before":              {"PING\nECHO a\nCL.THROTTLE k 1 1 60\nCOMMAND\nGET a\nQUIT\n", no + no + no + no + no + "+OK\r\n"},
		"wrong":               {"AUTH no\nAUTH default no\nPING\n", wrong + wrong + no},
		"right, wrong user":   {"AUTH admin secret\nPING\n", wrong + no},
		"right":               {"AUTH secret\nCL.THROTTLE k 1 1 60\n", "+OK\r\n*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n"},
		"with user":           {"AUTH default secret\nPING\n", "+OK\r\n+PONG\r\n"},
		"and then wrong":      {"AUTH secret\nAUTH no\nPING\n", "+OK\r\n" + wrong + "+PONG\r\n"},
		"hello":               {"HELLO 3\nHELLO 3 AUTH default no\nHELLO 3 AUTH default secret SETNAME x\nPING\n", "-NOAUTH HELLO must be called\r\n" + wrong + hello(3, 1) + "+PONG\r\n"},
		"hello, still RESP2":  {"HELLO 3 AUTH default no\nAUTH secret\nHELLO\n", wrong + "+OK\r\n" + hello(2, 1)},
		"reset":               {"AUTH secret\nRESET\nPING\n", "+OK\r\n+RESET\r\n" + no},
		"empty":               {array("AUTH", "") + array("AUTH", "default", ""), wrong + wrong},
		"a long password":     {array("AUTH", strings.Repeat("x", 8000)), wrong},
		"prefix of the right": {"AUTH secre\nAUTH secretx\n", wrong + wrong},
	} {
		t.Run(name, func(t *testing.T) {
			_, address := start(t, memstore.New(), resp.Config{Password: password("secret")})
			want := strings.ReplaceAll(tt.want, "must be called\r\n", "must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time\r\n")
			if got := say(t, address, tt.say); got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

// Failed attempts are limited per address and successful ones are not. After too many failures all attempts are rejected for
// a while.
func TestAttempts(t *testing.T) {
	attempts, err := sluice.New(memstore.New(), "resp-auth", sluice.PerHour(3))
	if err != nil {
		t.Fatal(err)
	}
	_, address := start(t, memstore.New(), resp.Config{Password: password("secret"), Attempts: attempts})
	const wrong, many = "-WRONGPASS invalid username-password pair or user is disabled.\r\n", "-ERR too many failed attempts: try again later\r\n"
	for range 20 {
		if got := say(t, address, "AUTH secret\nHELLO 2 AUTH default secret\nPING\n"); !strings.HasPrefix(got, "+OK\r\n*14\r\n") || !strings.HasSuffix(got, "+PONG\r\n") {
			t.Fatalf("got %q", got)
		}
	}
	if got := say(t, address, "AUTH a\nHELLO 3 AUTH default b\n"); got != wrong+wrong {
		t.Errorf("got %q", got)
	}
	if got := say(t, address, "AUTH c\nAUTH secret\nPING\n"); got != wrong+many {
		t.Errorf("got %q", got)
	}
	if got := say(t, address, "AUTH secret\nPING\n"); got != many {
		t.Errorf("got %q", got)
	}
}

// Concurrent connections of one address with the right password are all authenticated, even if reading the password is slow.
func TestAttemptsAtOnce(t *testing.T) {
	const limit, clients = 3, 12
	attempts, err := sluice.New(memstore.New(), "resp-auth", sluice.PerHour(limit))
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Add(clients)
	_, address := start(t, memstore.New(), resp.Config{Attempts: attempts, Password: func() [sha256.Size]byte {
		reading.Done()
		reading.Wait()
		return password("secret")()
	}})
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			if got := say(t, address, "AUTH secret\nPING\n"); got != "+OK\r\n+PONG\r\n" {
				t.Errorf("got %q", got)
			}
		})
	}
	all.Wait()
}

// Replies are counted.
func TestCounts(t *testing.T) {
	var mu sync.Mutex
	var got resp.Counts
	_, address := start(t, memstore.New(), resp.Config{Counted: func(c resp.Counts) {
		mu.Lock()
		defer mu.Unlock()
		got.Allowed, got.Denied, got.Other, got.Errors = got.Allowed+c.Allowed, got.Denied+c.Denied, got.Other+c.Other, got.Errors+c.Errors
	}})
	say(t, address, "CL.THROTTLE k 1 1 60\nPING\nCL.THROTTLE k 1 1 60\nCL.THROTTLE k 1 1 60\nCL.THROTTLE k\nGET a\nHELLO 5\n")
	c := dial(t, address)
	if _, err := io.WriteString(c, "PING\nQUIT\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(c).ReadString(0); err == nil {
		t.Error("the connection is not closed")
	}
	mu.Lock()
	defer mu.Unlock()
	if want := (resp.Counts{Allowed: 2, Denied: 1, Other: 3, Errors: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
