package envoyratelimit

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
)

// The last line of the log is written after SIGTERM, and after a second SIGTERM, which does not wait for a hanging request.
func TestLastLines(t *testing.T) {
	for want, signals := range map[string]int{"msg=stopped": 1, `msg="second signal received: exiting"`: 2} {
		_, environ := ruleDir(t, "  - {key: a, limit: 5}\n")
		p := launch(t, append(environ, "BACKEND_TYPE=memory")...)
		if signals == 2 {
			conn, err := net.Dial("tcp", p.addr("HTTP"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, "POST /json HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n")
			if _, err := conn.Read(make([]byte, 1)); err != nil { // the handler waits for the body
				t.Fatal(err)
			}
		} else {
			p.addr("HTTP")
		}
		for range signals {
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			p.says("msg=draining")
		}
		code := p.ended()
		lines := strings.Split(strings.TrimSpace(p.logged()), "\n")
		if last := lines[len(lines)-1]; code != signals-1 || !strings.Contains(last, want) {
			t.Errorf("%d signals: exit %d, the last line is %s", signals, code, last)
		}
	}
}
