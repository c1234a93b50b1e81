package grpclimit

import (
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// limitedStream is a stream that charges its messages and sends the quota before the first reply.
type limitedStream struct {
	grpc.ServerStream
	enforcer  *enforcer
	method    string
	key       string
	quota     metadata.MD               // nil: none to send
	quotaSent atomic.Bool               // the quota is in the header or trailer
	refused   atomic.Pointer[callError] // error of a denied message, which ends the stream
}

// open charges the call and wraps its stream.
func (g *enforcer) open(ss grpc.ServerStream, fullMethod string) (*limitedStream, charge, *callError) {
	key, refused := g.keyOf(ss.Context(), fullMethod)
	if refused != nil {
		return nil, charge{}, refused
	}
	c, refused := g.admit(ss.Context(), fullMethod, key, nil, g.chargeIf != nil)
	if refused != nil {
		return nil, charge{}, refused
	}
	return &limitedStream{ServerStream: ss, enforcer: g, method: fullMethod, key: key, quota: g.quotaOf(&c)}, c, nil
}

// RecvMsg receives a message and charges it.
func (s *limitedStream) RecvMsg(m any) error {
	if refused := s.refused.Load(); refused != nil {
		return refused.status.Err()
	}
	if err := s.ServerStream.RecvMsg(m); err != nil || !s.enforcer.perMessage {
		return err
	}
	_, refused := s.enforcer.admit(s.Context(), s.method, s.key, m, false)
	if refused != nil {
		s.refused.Store(refused)
		return refused.status.Err()
	}
	return nil
}

// SendMsg sends a message, after the quota if it is the first. After a denied message it returns the denial.
func (s *limitedStream) SendMsg(m any) error {
	if refused := s.refused.Load(); refused != nil {
		return refused.status.Err()
	}
	s.setQuota()
	return s.ServerStream.SendMsg(m)
}

// SendHeader adds the quota to the header and sends it.
func (s *limitedStream) SendHeader(md metadata.MD) error {
	s.setQuota()
	return s.ServerStream.SendHeader(md)
}

// setQuota adds the quota to the header, or to the trailer if the header has been sent.
func (s *limitedStream) setQuota() {
	if s.quota == nil || s.quotaSent.Swap(true) {
		return
	}
	if s.SetHeader(s.quota) != nil {
		s.SetTrailer(s.quota)
	}
}

// finish adds the quota if no reply was sent: to the header of a successful call, and to the trailer of an error, because
// clients do not retry an error with header metadata.
func (s *limitedStream) finish(err error) {
	switch {
	case err == nil:
		s.setQuota()
	case s.quota != nil && !s.quotaSent.Swap(true) && !isDenial(err):
		s.SetTrailer(s.quota)
	}
}
