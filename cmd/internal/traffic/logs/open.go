package logs

import (
	"context"
	"io"
	"os"

	"github.com/sluiceproject/sluice/internal/plainfile"
)

// Source is a log.
type Source struct {
	Name   string
	Reader io.Reader // lines, plain or compressed by gzip or zstd
	Size   int64     // of Reader in bytes, as it is stored, or 0 if unknown
}

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
		source := Source{Name: name, Reader: f}
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			source.Size = info.Size()
		} else {
			source.Reader = plainfile.Interruptible(ctx, f)
		}
		sources = append(sources, source)
	}
	return sources, closeAll, nil
}
