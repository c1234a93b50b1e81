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

// shell is a shell process that executes commands one after the other. It starts in the root of the repository.
type shell struct {
	in  io.Writer
	out *bufio.Reader
}

// newShell starts a shell. The shell and all its child processes are killed at the end of the test.
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
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the shell, and background processes that the document does not stop
		_ = cmd.Wait()
	})
	return &shell{in, bufio.NewReader(out)}
}

// run executes a command and returns its output and exit code.
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

// typed splits a block into commands and their output. A command may include a here-document.
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

// tour returns the blocks of commands in the section Walkthrough. The commands of other sections do not form a sequence.
func tour(t *testing.T) (all []block) {
	t.Helper()
	before, rest, found := strings.Cut(read(t, "docs/operations.md"), "\n## Walkthrough\n")
	if !found {
		t.Fatal("docs/operations.md has no section Walkthrough")
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

// The commands of the walkthrough print the output that the document shows. The test replaces only the ports, because the documented ones
// may be in use.
func TestOperationsTour(t *testing.T) {
	t.Parallel()
	free := map[string]string{}
	var there, back []string
	for _, address := range []string{"127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:6070", "127.0.0.1:9090"} {
		free[address] = tcptest.FreeAddress(t)
		there, back = append(there, address, free[address]), append(back, free[address], address)
	}
	s := newShell(t, "SLUICE_ADMIN_URL=http://"+free["127.0.0.1:6070"], "SLUICE_SERVICE_URL=http://"+free["127.0.0.1:8080"])
	comment := regexp.MustCompile(` +# ends with (\d)$`)
	commands := 0
	for _, b := range tour(t) {
		for _, each := range typed(b.text) {
			command, want, code := each[0], each[1], "0"
			if m := comment.FindStringSubmatch(command); m != nil {
				code, command = m[1], strings.TrimSuffix(command, m[0])
			}
			if job, found := strings.CutPrefix(command, "kill "); found { // wait, because a user would see the process exit before the next command
				command += "; wait " + job + " 2>/dev/null || true"
			}
			commands++
			out, got := s.run(t, strings.NewReplacer(there...).Replace(command))
			out = strings.NewReplacer(back...).Replace(out)
			if got != code || !shows(want, out) {
				logs, _ := s.run(t, "tail -n 30 *.log")
				t.Fatalf("docs/operations.md:%d: %s\nexit code %s, output\n%s\nwant\n%s\nlogs:\n%s", b.line, command, got, out, want, logs)
			}
		}
	}
	if commands < 15 {
		t.Errorf("only %d commands were found", commands)
	}
}
