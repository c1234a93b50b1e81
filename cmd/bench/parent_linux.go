package main

import "syscall"

// dieWithParent makes the kernel kill a server when the process that started it is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
