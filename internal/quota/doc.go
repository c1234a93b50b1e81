// Package quota tells callers what is left of their limits: in response headers of several formats, in the words of a
// denial, and beside the headers in which an upstream tells of its own limits.
package quota
