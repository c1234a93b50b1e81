// Package demo is what `sluice demo` runs: a small API, the service before it with ten rules, and made-up clients.
package demo
