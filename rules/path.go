package rules

import "github.com/sluiceproject/sluice/internal/match"

// ErrAmbiguousPath is wrapped by the error of a path that two servers may read differently, or that none should. Whichever
// reading was matched here, the application could have the other, so such a request is refused. So is one with a path of
// more than 8 KiB.
var ErrAmbiguousPath = match.ErrAmbiguousPath
