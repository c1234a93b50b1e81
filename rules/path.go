package rules

import "github.com/sluiceproject/sluice/internal/match"

// ErrAmbiguousPath is wrapped by the error of a path that is malformed, longer than 8 KiB, or that two servers may read
// differently. Such a request is rejected, because the application could read the path differently from the one that
// was matched.
var ErrAmbiguousPath = match.ErrAmbiguousPath
