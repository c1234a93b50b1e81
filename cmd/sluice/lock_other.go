//go:build !unix

package main

import "context"

// lockDirectory does nothing: directories cannot be locked here.
func lockDirectory(context.Context, string) (unlock func(), err error) { return func() {}, nil }
