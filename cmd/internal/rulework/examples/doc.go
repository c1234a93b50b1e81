// Package examples records the responses that clients of an API get under its rules. They come from the real middleware
// and gateway, which run on a virtual clock.
package examples
