package term

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	xterm "golang.org/x/term"

	"github.com/sluiceproject/sluice/internal/plainfile"
)

// ReadSecret reads the first line of the input. On a terminal it is asked for, and not shown. Secrets are no arguments:
// everybody on a machine can see those.
func ReadSecret(ctx context.Context, in io.Reader, ask io.Writer, prompt string) (string, error) {
	if f, ok := in.(*os.File); ok && xterm.IsTerminal(int(f.Fd())) {
		fmt.Fprint(ask, prompt)
		b, err := xterm.ReadPassword(int(f.Fd()))
		fmt.Fprintln(ask)
		return string(b), err
	}
	const most = 4096
	line, err := bufio.NewReader(io.LimitReader(plainfile.Interruptible(ctx, in), most)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", errors.New("there is nothing on standard input: write it there, in one line")
	}
	return line, nil
}
