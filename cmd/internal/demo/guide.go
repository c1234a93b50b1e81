package demo

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// guide is the text that the demo prints at its start. Lines that begin with two spaces are commands for another terminal.
type guide struct {
	gateway, http, grpc, admin string   // addresses of the listeners
	rules                      string   // path of the rule file
	taken                      []string // default addresses in use by other programs
}

const guideText = `A small API runs behind the Sluice gateway at http://%[1]s.
Try these commands in another terminal.

An allowed request; the response headers show the remaining quota:

  curl -i http://%[1]s/hello

A denied request (429). The limit is 5 requests per minute and IP address; Retry-After is the time until a retry can succeed:

  for i in 1 2 3 4 5; do curl -so /dev/null -w '%%{http_code}\n' http://%[1]s/hello; done; curl -i http://%[1]s/hello

A queued request (202). The limit is one export per 5 s and user; the second is stored on disk and delivered later. Its status URL
shows the result:

  for i in 1 2; do response=$(curl -si -X POST -H 'X-User: you' http://%[1]s/exports); echo "$response"; done
  status=http://%[1]s$(echo "$response" | tr -d '\r' | sed -n 's/^Location: //p')
  while curl -s $status | grep -E '"(queued|delivering)"'; do sleep 1; done; curl -s $status

The state of the service, the most denied keys, allowed and denied requests live, and the queue:

`

func (g *guide) write(w io.Writer) {
	var b strings.Builder
	fmt.Fprintf(&b, guideText, g.gateway)
	program, setup := g.program()
	if setup != "" {
		fmt.Fprintf(&b, "  export %s\n", setup)
	}
	for _, command := range []string{"status", "top", "watch", "queue list"} {
		fmt.Fprintf(&b, "  %s %s\n", program, command)
	}
	fmt.Fprintf(&b, "\nThe ten rules of the demo are in %s. Edit the file, and the gateway reloads it.\n", g.rules)
	fmt.Fprintf(&b, "Other listeners: check API on %s, Envoy's rate limit protocol (gRPC) on %s, admin API on %s.\n", g.http, g.grpc, g.admin)
	if len(g.taken) > 0 {
		fmt.Fprintf(&b, "Some listeners use other ports than usual, because other programs use %s.\n", strings.Join(g.taken, ", "))
	}
	b.WriteString("ctrl-C stops the demo and deletes its files.\n")
	_, _ = io.WriteString(w, b.String())
}

// program returns the name by which another terminal can call this program, and the environment variables to set there first. PATH
// is among them after go run, which builds the program in a temporary directory.
func (g *guide) program() (name, setup string) {
	const sluice = "sluice"
	var needs []string
	name = sluice
	if self, err := os.Executable(); err == nil {
		found, _ := exec.LookPath(sluice)
		switch {
		case sameFile(found, self):
		case filepath.Base(self) == sluice:
			needs = append(needs, "PATH="+term.ShellQuoted(filepath.Dir(self))+":$PATH")
		default:
			name = term.ShellQuoted(self)
		}
	}
	for _, v := range []struct{ variable, usual, is string }{
		{"SLUICE_ADMIN_URL", adminclient.DefaultAdmin, "http://" + g.admin}, {"SLUICE_SERVICE_URL", adminclient.DefaultService, "http://" + g.http},
	} {
		if cmp.Or(os.Getenv(v.variable), v.usual) != v.is {
			needs = append(needs, v.variable+"="+v.is)
		}
	}
	return name, strings.Join(needs, " ")
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
