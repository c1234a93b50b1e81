package plainfile_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/internal/plainfile"
)

// TestContents checks that files are returned on the first read and after changes, and that errors are returned once.
func TestContents(t *testing.T) {
	files := map[string]string{"a": "1", "b": "2"}
	read := func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, fmt.Errorf("%s: %w", name, os.ErrNotExist)
	}
	var c plainfile.Contents
	look := func(want string) {
		t.Helper()
		data, changed, err := c.Read([]string{"a", "b"}, read)
		got := fmt.Sprintf("%s %v", data, changed)
		if err != nil {
			got = fmt.Sprintf("%v: %v %v", changed, err, errors.Is(err, os.ErrNotExist))
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	look("[1 2] true")
	look("[] false")
	files["b"] = ""
	look("[1 ] true")
	look("[] false")
	delete(files, "a")
	delete(files, "b")
	look("true: a: file does not exist\nb: file does not exist true")
	look("[] false")
	files["a"], files["b"] = "1", "" // as before the error
	look("[1 ] true")

	var none plainfile.Contents
	for _, want := range []bool{true, false} {
		if data, changed, err := none.Read(nil, read); changed != want || len(data) != 0 || err != nil {
			t.Errorf("no files: %v, %v, %v", data, changed, err)
		}
	}
}

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer stop()
		looks := 0
		plainfile.Poll(ctx, time.Second, func() { looks++ })
		if looks != 3 {
			t.Errorf("%d looks in 3.5 s, want 3", looks)
		}
	})
}
