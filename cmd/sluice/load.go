package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/rulefile"
)

// ruleFlags are the flags of the commands that read rules.
type ruleFlags struct{ mergeDomains bool }

func (f *ruleFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.mergeDomains, "merge-domains", false, "let several Envoy files hold parts of one domain")
}

func (f *ruleFlags) options() rulefile.Options { return rulefile.Options{MergeDomains: f.mergeDomains} }

// load reads rules for a command that needs them sound. Faults are broken input here; check is there to find them.
func (f *ruleFlags) load(ctx context.Context, paths []string) (*rulefile.Loaded, error) {
	paths = orHere(paths)
	sources, err := readSources(ctx, paths)
	if err != nil {
		return nil, brokenRules(err, paths)
	}
	loaded, err := rulefile.LoadSources(f.options(), sources...)
	if err != nil {
		return nil, brokenRules(err, paths)
	}
	return loaded, nil
}

// readSources reads rule files and directories. Unlike a service, a command may be given a pipe: rules from another program,
// or standard input. It ends with the context.
func readSources(ctx context.Context, paths []string) ([]rulefile.Source, error) {
	var streams []rulefile.Source
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || info.IsDir() || info.Mode().IsRegular() {
			files = append(files, path)
			continue
		}
		data, err := plainfile.ReadStream(ctx, path, rulefile.MaxFileBytes)
		if err != nil {
			return nil, err
		}
		streams = append(streams, rulefile.Source{Name: path, Data: data})
	}
	if len(files) == 0 {
		return streams, nil
	}
	sources, err := rulefile.Read(files...)
	return append(sources, streams...), err
}

// brokenRules lists faults one to a line and says where to see more of them.
func brokenRules(err error, paths []string) error {
	return broken("the rules have", err, strings.Join(paths, " "))
}

// brokenConfig lists faults of a configuration one to a line.
func brokenConfig(err error, file string) error {
	return broken("the configuration has", err, file)
}

func broken(what string, err error, files string) error {
	found, other := faults(err)
	if len(found) == 0 {
		return other
	}
	lines := make([]string, 0, len(found))
	for _, e := range leaves(err) {
		lines = append(lines, "  "+term.Printable(e.Error()))
	}
	advice := ""
	if slices.ContainsFunc(found, func(f finding) bool { return f.Line > 0 }) {
		advice = "\nto see the lines, run: sluice check " + files
	}
	return fmt.Errorf("%s %s:\n%s%s", what, term.Count(len(found), "fault"), strings.Join(lines, "\n"), advice)
}

// leaves are the single errors of joined ones, each with what is written before all of them.
func leaves(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	var all []error
	if !ok {
		inner := leaves(errors.Unwrap(err))
		if len(inner) < 2 {
			return []error{err}
		}
		prefix, ok := strings.CutSuffix(err.Error(), errors.Unwrap(err).Error())
		if !ok {
			return []error{err}
		}
		for _, e := range inner {
			all = append(all, fmt.Errorf("%s%w", prefix, e))
		}
		return all
	}
	var texts []string
	for _, e := range joined.Unwrap() {
		all = append(all, leaves(e)...)
		texts = append(texts, e.Error())
	}
	if strings.Join(texts, "\n") != err.Error() {
		return []error{err} // it has several causes, and a text of its own
	}
	return all
}

// orHere is the current directory if no paths are given.
func orHere(paths []string) []string {
	if len(paths) == 0 {
		return []string{"."}
	}
	return paths
}
