//go:build !linux

package authtest

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
