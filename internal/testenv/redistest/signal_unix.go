//go:build unix

package redistest

import "syscall"

// Stop has the process stand still until Continue.
func (s *Server) Stop() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue lets a stopped process go on.
func (s *Server) Continue() error { return s.cmd.Process.Signal(syscall.SIGCONT) }
