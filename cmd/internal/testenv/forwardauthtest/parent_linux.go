package forwardauthtest

import "syscall"

// dieWithParent has the kernel kill the server when the thread that started it ends, even if that was killed itself.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
