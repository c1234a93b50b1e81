// Package logs reads access logs, packed or not, and merges several of them in the order of their requests' times.
// What a line of each format says is read by package accesslog.
package logs
