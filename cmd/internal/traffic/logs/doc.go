// Package logs reads access logs, compressed by gzip or not, and merges several of them by time. Package accesslog parses
// the lines.
package logs
