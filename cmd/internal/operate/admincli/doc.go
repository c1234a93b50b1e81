// Package admincli converts between the command line and the APIs of a running service: it turns arguments into request
// bodies, and responses into text.
package admincli
