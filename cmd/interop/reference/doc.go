// Package reference pins the reference service, its client and its file checker.
//
// They are tools of a module of their own, so that they are built with the dependencies they ask for and nobody else
// downloads them:
//
//	go build -o /tmp/reference/ tool
package reference
