//go:build !unix

package plainfile

import "context"

// LockDirectory does nothing: directories cannot be locked here.
func LockDirectory(context.Context, string) (unlock func(), err error) { return func() {}, nil }
