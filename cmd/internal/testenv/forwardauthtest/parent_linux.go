package forwardauthtest

import "syscall"

// dieWithParent makes the kernel kill the server when the thread that started it ends, even if the parent was killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
