package sources

import (
	"context"
	"os"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/fileerrors"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/rulefile"
)

// Read reads rule files and directories. Unlike a service, a command may read a pipe: rules from another program, or
// standard input. It stops when ctx is done.
func Read(ctx context.Context, paths []string) ([]rulefile.File, error) {
	var streams []rulefile.File
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || info.IsDir() || info.Mode().IsRegular() {
			files = append(files, path)
			continue
		}
		data, err := plainfile.ReadStream(ctx, path, rulefile.MaxFileBytes)
		if err != nil {
			return nil, plainfile.Explain(path, err)
		}
		streams = append(streams, rulefile.File{Name: path, Data: data})
	}
	if len(files) == 0 {
		return streams, nil
	}
	sources, err := rulefile.ReadFiles(files...)
	return append(sources, streams...), err
}

// Load reads rules for a command that needs valid ones. An error in a file is invalid input here; sluice check finds
// errors.
func Load(ctx context.Context, o rulefile.Options, paths []string) (*rulefile.LoadResult, error) {
	sources, err := Read(ctx, paths)
	if err != nil {
		return nil, fileerrors.InRules(err, paths)
	}
	loaded, err := rulefile.LoadFiles(o, sources...)
	if err != nil {
		return nil, fileerrors.InRules(err, paths)
	}
	return loaded, nil
}
