//go:build !unix

package plainfile

import "context"

// LockDirectory does nothing: directories cannot be locked on this platform.
func LockDirectory(context.Context, string) (unlock func(), err error) { return func() {}, nil }
