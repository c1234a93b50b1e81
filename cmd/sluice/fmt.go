package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/rulefile"
)

// fmtFlags are what fmt does with a file.
type fmtFlags struct{ write, list, check bool }

func fmtCommand() *cobra.Command {
	var f fmtFlags
	c := &cobra.Command{
		Use:   "fmt [FILE|DIRECTORY]...",
		Short: "Format rule files",
		Long: "Print rule files and test files in the usual form: the same keys in the same order, comments kept. Of a\n" +
			"directory all *.yaml and *.yml files are meant. Without arguments standard input is formatted.",
		Example: "  sluice fmt posts.yaml            # print it formatted\n" +
			"  sluice fmt -w rules/             # format the files themselves\n" +
			"  sluice fmt -l rules/             # list the files that would change\n" +
			"  sluice fmt --check rules/        # the same, and end with 1 if there are any",
		ValidArgsFunction: term.CompleteRules,
		RunE: func(c *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				if f != (fmtFlags{}) {
					return fmt.Errorf("name the files: standard input is only formatted to standard output")
				}
				return formatInput(plainfile.Interruptible(c.Context(), c.InOrStdin()), c.OutOrStdout())
			}
			return f.run(c, paths)
		},
	}
	c.Flags().BoolVarP(&f.write, "write", "w", false, "write the result to the file instead of printing it")
	c.Flags().BoolVarP(&f.list, "list", "l", false, "list files whose form is another")
	c.Flags().BoolVar(&f.check, "check", false, "list files whose form is another, and end with 1 if there are any")
	c.MarkFlagsMutuallyExclusive("write", "check")
	return c
}

// maxInput bounds what is read from standard input: no rule file is larger.
const maxInput = 1 << 20

func formatInput(in io.Reader, out io.Writer) error {
	src, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return err
	}
	if len(src) > maxInput {
		return fmt.Errorf("standard input is more than %d bytes", maxInput)
	}
	formatted, err := rulefile.Format("standard input", src)
	if err != nil {
		return err
	}
	_, err = out.Write(formatted)
	return err
}

func (f *fmtFlags) run(c *cobra.Command, paths []string) error {
	names, err := yamlFiles(paths)
	if err != nil {
		return err
	}
	different := false
	var faults []error // of some files, which are left as they are; the others are formatted
	for _, name := range names {
		changed, err := f.file(c.Context(), c.OutOrStdout(), name)
		different = different || changed
		faults = append(faults, err)
	}
	err = errors.Join(faults...)
	if err == nil && f.check && different {
		return term.ErrFindings
	}
	return err
}

// file formats one file and tells whether its form was another.
func (f *fmtFlags) file(ctx context.Context, out io.Writer, name string) (changed bool, err error) {
	src, err := plainfile.ReadStream(ctx, name, maxInput)
	if err != nil {
		return false, err
	}
	formatted, err := rulefile.Format(name, src)
	if err != nil {
		return false, err
	}
	changed = !bytes.Equal(src, formatted)
	if changed && (f.list || f.check) {
		fmt.Fprintln(out, name)
	}
	if changed && f.write {
		return true, replaceFile(name, formatted)
	}
	if !f.list && !f.check && !f.write {
		_, err = out.Write(formatted)
	}
	return changed, err
}

// replaceFile writes a file so that readers see the old content or the new one, whole, and nothing between. A symbolic
// link stays one: the file it leads to is replaced.
func replaceFile(name string, content []byte) (err error) {
	if name, err = filepath.EvalSymlinks(name); err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".sluice-fmt-*") // a dot file: nobody takes it for rules
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(content); err != nil {
		return err
	}
	if err = tmp.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	if err = tmp.Sync(); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
}

// yamlFiles lists the YAML files of directories, tests included, and files as they are.
func yamlFiles(paths []string) ([]string, error) {
	var names []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			names = append(names, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			ext := filepath.Ext(e.Name())
			if !e.IsDir() && e.Name()[0] != '.' && (ext == ".yaml" || ext == ".yml") {
				names = append(names, filepath.Join(path, e.Name()))
			}
		}
	}
	return names, nil
}
