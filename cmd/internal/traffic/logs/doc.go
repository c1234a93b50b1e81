// Package logs reads the access logs of Sluice and of other servers, compressed or not, and merges several of them by time.
//
// The format of each log is detected from its first lines, or given. A request is an [Entry]: the fields that all formats
// have are in its Record, all others are found by name. Memory is bounded: a log may be larger than memory, and its lines
// may contain anything.
package logs
