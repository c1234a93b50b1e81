package redisstore

// WithoutHints has a store send no hints, to show what they are good for. It comes before the first call.
func (s *Store) WithoutHints() *Store {
	s.hinter.off = true
	return s
}
