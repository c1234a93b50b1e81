// Package logs reads access logs, packed or not, and merges several of them in the order of their requests' times.
package logs
