package serve

import (
	"errors"
	"regexp"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/fileerrors"
)

// keyOfError matches the key of a setting at the beginning of an error: tls.cert_file, directory.
var keyOfError = regexp.MustCompile(`^(?:[a-z_]+\.)*(?:[a-z_]+_(?:file|dir)|file|directory|url|addresses|address|endpoint): `)

// inSetting adds the name of a section to all errors in err, instead of prefix, the name of a package or listener. If an error
// begins with the key of a setting, the name of the setting is complete.
func inSetting(section, prefix string, err error) error {
	var all []error
	for _, e := range fileerrors.Each(err) {
		all = append(all, under(section, prefix, e))
	}
	return errors.Join(all...)
}

func under(section, prefix string, err error) error {
	text := strings.TrimPrefix(err.Error(), prefix+": ")
	if keyOfError.MatchString(text) {
		return &settingError{section + "." + text, err}
	}
	return &settingError{section + ": " + text, err}
}

// settingError is an error that begins with the name of a setting.
type settingError struct {
	text string
	err  error
}

func (e *settingError) Error() string { return e.text }

func (e *settingError) Unwrap() error { return e.err }

// inListeners names the listeners in the errors of package listen as the configuration does.
func inListeners(err error) error {
	var all []error
	for _, e := range fileerrors.Each(err) {
		name, _, _ := strings.Cut(e.Error(), ": ")
		for setting, listener := range listenerNames {
			if listener == name {
				e = under("listeners."+setting, name, e)
			}
		}
		all = append(all, e)
	}
	return errors.Join(all...)
}
