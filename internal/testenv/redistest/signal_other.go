//go:build !unix

package redistest

import "errors"

// Stop pauses the process until Continue.
func (s *Server) Stop() error { return errors.ErrUnsupported }

// Continue resumes a paused process.
func (s *Server) Continue() error { return errors.ErrUnsupported }
