//go:build unix

package doctest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// shell is a terminal in which commands are typed one after the other, in the repository at first.
type shell struct {
	in  io.Writer
	out *bufio.Reader
}

// newShell opens a terminal. All that was started in it ends with the test.
func newShell(t *testing.T, env ...string) *shell {
	t.Helper()
	home := t.TempDir()
	bin := filepath.Join(home, "bin")
	cmd := exec.Command("bash", "--norc", "-s")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), append(env, "GOBIN="+bin, "PATH="+bin+":"+os.Getenv("PATH"), "TMPDIR="+home, "NO_COLOR=1")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what the document left running, and the shell
		_ = cmd.Wait()
	})
	return &shell{in, bufio.NewReader(out)}
}

// run types a command and returns what it prints and ends with.
func (s *shell) run(t *testing.T, command string) (output, code string) {
	t.Helper()
	const mark = "=== ended with "
	if _, err := fmt.Fprintf(s.in, "%s\necho '%s'$?\n", command, mark); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	var b strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: %v after\n%s", command, err, b.String())
		}
		if before, code, ended := strings.Cut(line, mark); ended {
			b.WriteString(before)
			return b.String(), strings.TrimSpace(code)
		}
		b.WriteString(line)
	}
}

// typed splits a block into commands and what each prints. A command may go on to the end of a here-document.
func typed(block string) (all [][2]string) {
	here := regexp.MustCompile(`<<'(\w+)'`)
	for _, shown := range strings.Split("\n"+block, "\n$ ")[1:] {
		command, want, _ := strings.Cut(shown, "\n")
		if m := here.FindStringSubmatch(command); m != nil {
			text, rest, _ := strings.Cut(want+"\n", "\n"+m[1]+"\n")
			command, want = command+"\n"+text+"\n"+m[1], rest
		}
		all = append(all, [2]string{command, want})
	}
	return all
}

// tour is the blocks of commands in the section of that name. Others are not meant to be typed in a row.
func tour(t *testing.T) (all []block) {
	t.Helper()
	before, rest, found := strings.Cut(read(t, "docs/operations.md"), "\n## A tour\n")
	if !found {
		t.Fatal("docs/operations.md has no tour")
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	begin := 2 + strings.Count(before, "\n")
	end := begin + 1 + strings.Count(section, "\n")
	for _, b := range blocks(t, "docs/operations.md", "console") {
		if begin < b.line && b.line <= end {
			all = append(all, b)
		}
	}
	return all
}

// A stranger who types the commands of the tour sees what the document shows. Only the ports are others, so that the test
// finds them free.
func TestOperationsTour(t *testing.T) {
	t.Parallel()
	free := map[string]string{}
	var there, back []string
	for _, address := range []string{"127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:6070", "127.0.0.1:9090"} {
		free[address] = tcptest.FreeAddress(t)
		there, back = append(there, address, free[address]), append(back, free[address], address)
	}
	s := newShell(t, "SLUICE_ADMIN=http://"+free["127.0.0.1:6070"], "SLUICE_SERVICE=http://"+free["127.0.0.1:8080"])
	comment := regexp.MustCompile(` +# ends with (\d)$`)
	commands := 0
	for _, b := range tour(t) {
		for _, each := range typed(b.text) {
			command, want, code := each[0], each[1], "0"
			if m := comment.FindStringSubmatch(command); m != nil {
				code, command = m[1], strings.TrimSuffix(command, m[0])
			}
			if job, found := strings.CutPrefix(command, "kill "); found { // who types the next command has seen it end
				command += "; wait " + job + " 2>/dev/null || true"
			}
			commands++
			out, got := s.run(t, strings.NewReplacer(there...).Replace(command))
			out = strings.NewReplacer(back...).Replace(out)
			if got != code || !shows(want, out) {
				logs, _ := s.run(t, "tail -n 30 *.log")
				t.Fatalf("docs/operations.md:%d: %s\nends with %s and prints\n%s\nthe document shows\n%s\nlogs:\n%s", b.line, command, got, out, want, logs)
			}
		}
	}
	if commands < 15 {
		t.Errorf("only %d commands were found", commands)
	}
}
