//go:build !linux

package forwardauthtest

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
