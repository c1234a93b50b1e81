package grpclimit

import (
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// limitedStream is a stream whose messages are charged, and whose caller is told of the quota before the first reply.
type limitedStream struct {
	grpc.ServerStream
	enforcer  *enforcer
	method    string
	key       string
	quota     metadata.MD               // nil if there is nothing to tell
	quotaSent atomic.Bool               // the quota is on its way
	refused   atomic.Pointer[callError] // why the stream ends, if a message was denied
}

// open charges the call.
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

// SendMsg tells of the quota before the first message, and ends with the denial once a message was denied.
func (s *limitedStream) SendMsg(m any) error {
	if refused := s.refused.Load(); refused != nil {
		return refused.status.Err()
	}
	s.tell()
	return s.ServerStream.SendMsg(m)
}

// SendHeader adds the quota.
func (s *limitedStream) SendHeader(md metadata.MD) error {
	s.tell()
	return s.ServerStream.SendHeader(md)
}

// tell puts the quota into the header, or into the trailer if the header has gone.
func (s *limitedStream) tell() {
	if s.quota == nil || s.quotaSent.Swap(true) {
		return
	}
	if s.SetHeader(s.quota) != nil {
		s.SetTrailer(s.quota)
	}
}

// finish tells of the quota if no reply has. An error with header metadata could not be retried by the client.
func (s *limitedStream) finish(err error) {
	switch {
	case err == nil:
		s.tell()
	case s.quota != nil && !s.quotaSent.Swap(true) && !isDenial(err):
		s.SetTrailer(s.quota)
	}
}
