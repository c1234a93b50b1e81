// Package quota writes the remaining quota of a client: response headers in several formats, the problem detail of a
// denial, and the merge of quota headers with those of an upstream.
package quota
