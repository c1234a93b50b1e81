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

// ReadSecret reads the first line of the input. On a terminal it prints the prompt and does not echo the input. Commands read
// secrets this way because all users of a host can see the arguments of a process.
func ReadSecret(ctx context.Context, in io.Reader, ask io.Writer, prompt string) (string, error) {
	if f, ok := in.(*os.File); ok && xterm.IsTerminal(int(f.Fd())) {
		fmt.Fprint(ask, prompt)
		b, err := xterm.ReadPassword(int(f.Fd()))
		fmt.Fprintln(ask)
		return string(b), err
	}
	const maxBytes = 4096
	line, err := bufio.NewReader(io.LimitReader(plainfile.Interruptible(ctx, in), maxBytes)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", errors.New("standard input is empty: write the secret as one line")
	}
	return line, nil
}
