//go:build !unix

package redistest

import "errors"

// Stop has the process stand still until Continue.
func (s *Server) Stop() error { return errors.ErrUnsupported }

// Continue lets a stopped process go on.
func (s *Server) Continue() error { return errors.ErrUnsupported }
