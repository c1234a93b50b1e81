//go:build unix

package redistest

import "syscall"

// Stop pauses the process until Continue.
func (s *Server) Stop() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue resumes a paused process.
func (s *Server) Continue() error { return s.cmd.Process.Signal(syscall.SIGCONT) }
