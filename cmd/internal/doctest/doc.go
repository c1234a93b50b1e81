// Package doctest holds the tests that keep the documentation true: they run what README and docs show.
package doctest
