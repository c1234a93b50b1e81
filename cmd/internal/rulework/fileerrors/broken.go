package fileerrors

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// InRules returns an error that lists the errors in rule files, one per line, with advice on how to see the lines.
func InRules(err error, paths []string) error {
	return broken("the rule files have", err, strings.Join(paths, " "))
}

// InConfig returns an error that lists the errors in a configuration, one per line.
func InConfig(err error, file string) error {
	return broken("the configuration file has", err, file)
}

func broken(what string, err error, files string) error {
	found, other := Split(err)
	if len(found) == 0 {
		return other
	}
	lines := make([]string, 0, len(found))
	for _, e := range Each(err) {
		lines = append(lines, "  "+term.Printable(e.Error()))
	}
	advice := ""
	if slices.ContainsFunc(found, func(f Diagnostic) bool { return f.Line > 0 }) {
		advice = "\nto see the lines, run: sluice check " + files
	}
	return fmt.Errorf("%s %s:\n%s%s", what, term.Count(len(found), "error"), strings.Join(lines, "\n"), advice)
}

// Each returns the single errors of a joined error, each with the text before all of them.
func Each(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	var all []error
	if !ok {
		inner := Each(errors.Unwrap(err))
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
		all = append(all, Each(e)...)
		texts = append(texts, e.Error())
	}
	if strings.Join(texts, "\n") != err.Error() {
		return []error{err} // it has several causes, and its own text
	}
	return all
}
