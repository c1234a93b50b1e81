package envoyratelimit

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/sluiceproject/sluice/cmd/internal/envoy/stats"
	"github.com/sluiceproject/sluice/cmd/internal/stores"
	"github.com/sluiceproject/sluice/rulefile"
)

// RuleFiles are the rule files that the service would read. [ReadRuleFiles] returns them.
type RuleFiles struct {
	Files    []rulefile.File
	Warnings []string // about environment variables, as the service logs them

	settings *Settings
	domains  error           // lists documents without a domain
	sound    []rulefile.File // files without such documents
}

// ReadRuleFiles reads the rule files that the service would read with these environment variables. It returns an error if a
// variable is invalid or there are no files.
func ReadRuleFiles(environ []string) (*RuleFiles, error) {
	settings, warnings, err := ReadSettings(environ)
	if err != nil {
		return nil, err
	}
	if settings.Rules.Source != "FILE" {
		return nil, fmt.Errorf("CONFIG_TYPE=%s: the control plane sends the rules: there are no files to check", settings.Rules.Source)
	}
	f := newFiles(settings.Rules, nil, nil, nil, slog.New(slog.DiscardHandler))
	if _, err := os.Stat(f.dir); err != nil {
		return nil, fmt.Errorf("directory %s of RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY not found: %w", f.dir, errors.Unwrap(err))
	}
	files, err := f.list(f.dir)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no rule files in %s", f.dir)
	}
	r := &RuleFiles{Files: files, Warnings: warnings, settings: settings, domains: f.domains(files)}
	for _, file := range files {
		if _, ok := f.sound[file.Name]; ok {
			r.sound = append(r.sound, file)
		}
	}
	return r, nil
}

// Load compiles the rules as the service does. The error joins all errors that the service would report.
func (r *RuleFiles) Load() (*rulefile.LoadResult, error) {
	options := rulefile.Options{MergeDomains: r.settings.Rules.Merge, Incomplete: r.domains != nil}
	loaded, err := rulefile.LoadFiles(options, append(r.sound, noRules)...)
	if err = errors.Join(r.domains, err); err != nil {
		return nil, err
	}
	service, err := NewService(stores.Memory().Store, r.settings, stats.New(0))
	if err != nil {
		return nil, err
	}
	return loaded, service.Use(loaded.Set)
}
