// Package config reads the file that sluice serve is configured by.
//
// All settings stand in one table with their defaults and what they mean; reading, the defaults themselves, the JSON
// Schema and the table in docs/service.md come from it. A file is strict: what is not known is a fault, and all faults are
// reported at once with their lines. In values, but not in keys, ${NAME} stands for an environment variable.
package config
