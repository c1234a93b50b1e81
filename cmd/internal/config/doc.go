// Package config reads the configuration file of sluice serve.
//
// One table lists all settings with their types, defaults and descriptions. The decoder, the defaults, the JSON Schema and the
// table in docs/settings.md are derived from it. Unknown keys are errors, and all errors of a file are reported at once with
// line and column. In values, but not in keys, ${NAME} is replaced by an environment variable.
package config
