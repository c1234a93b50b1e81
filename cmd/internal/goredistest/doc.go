// Package goredistest tests redisstore/goredis on real servers. It contains only tests. They are not part of goredis,
// because that is a separate module, which must not import internal packages of another one even in tests: go mod tidy
// of a program that uses goredis reads the tests too.
package goredistest
