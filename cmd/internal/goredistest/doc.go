// Package goredistest holds redisstore/goredis to its promises, on servers that it starts. It has tests and no code. It is
// not a part of goredis because that is a module of its own, which imports no internal package of another, not even in
// tests: go mod tidy of a program that uses goredis reads them too.
package goredistest
