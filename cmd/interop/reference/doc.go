// Package reference pins the reference service, its client and its file checker.
//
// They are tools of a separate module, so that they are built with their own versions of dependencies and no other
// module downloads them:
//
//	go build -o /tmp/reference/ tool
package reference
