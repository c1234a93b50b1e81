package logs

import (
	"context"
	"io"
	"os"

	"github.com/sluiceproject/sluice/internal/plainfile"
)

// Open opens logs by name; - is standard input. closeAll closes the files.
func Open(ctx context.Context, names []string, stdin io.Reader) (sources []Source, closeAll func(), err error) {
	var files []*os.File
	closeAll = func() {
		for _, f := range files {
			_ = f.Close() // read only
		}
	}
	for _, name := range names {
		if name == "-" {
			sources = append(sources, Source{Name: "standard input", Reader: plainfile.Interruptible(ctx, stdin)})
			continue
		}
		f, err := plainfile.OpenStream(ctx, name)
		if err != nil {
			closeAll()
			return nil, nil, plainfile.Explain(name, err)
		}
		files = append(files, f)
		var reader io.Reader = f
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			reader = plainfile.Interruptible(ctx, f)
		}
		sources = append(sources, Source{Name: name, Reader: reader})
	}
	return sources, closeAll, nil
}
