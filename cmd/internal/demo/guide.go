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

// guide is what the demo tells who has started it. Lines that begin with two spaces are commands for another terminal.
type guide struct {
	gateway, http, grpc, admin string   // where they listen
	rules                      string   // the file
	taken                      []string // where something else listens
}

const guideText = `Sluice stands before a small API, at http://%[1]s. In another terminal:

An allowed request. The headers say what is left:

  curl -i http://%[1]s/hello

A 429. Each address has 5 a minute; the answer says when to come back:

  for i in 1 2 3 4 5; do curl -so /dev/null -w '%%{http_code}\n' http://%[1]s/hello; done; curl -i http://%[1]s/hello

A 202. Each user has one export in 5 s; the second is kept on disk and done when there is room, as its status URL tells:

  for i in 1 2; do kept=$(curl -si -X POST -H 'X-User: you' http://%[1]s/exports); echo "$kept"; done
  status=http://%[1]s$(echo "$kept" | tr -d '\r' | sed -n 's/^Location: //p')
  while curl -s $status | grep -E '"(queued|delivering)"'; do sleep 1; done; curl -s $status

How it is, whom it limits, what it decides right now, what it keeps for later:

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
	fmt.Fprintf(&b, "\nIts ten rules are in %s: change them, and they are read again.\n", g.rules)
	fmt.Fprintf(&b, "It answers checks in JSON on %s, Envoy on %s, operators on %s.\n", g.http, g.grpc, g.admin)
	if len(g.taken) > 0 {
		fmt.Fprintf(&b, "Some are on free ports, because something else listens on %s.\n", strings.Join(g.taken, ", "))
	}
	b.WriteString("ctrl-C ends it and removes what it wrote.\n")
	_, _ = io.WriteString(w, b.String())
}

// program is how this program is called from another terminal, and what that terminal's environment needs for it: go run
// puts it where no shell looks for it.
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
		{"SLUICE_ADMIN", adminclient.DefaultAdmin, "http://" + g.admin}, {"SLUICE_SERVICE", adminclient.DefaultService, "http://" + g.http},
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
