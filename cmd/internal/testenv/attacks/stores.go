package attacks

import "strings"

// RedisReplies are replies that no Redis server sends: negative, huge and malformed lengths, depth, wrong types.
var RedisReplies = []string{
	"$-9\r\n", "$-2\r\n", "*-9\r\n", "*1000000000\r\n", "$1000000000\r\n", "$9223372036854775807\r\n", "$99999999999999999999\r\n", "%1000000000\r\n", "~1000000000\r\n", ">1000000000\r\n",
	"*-2147483648\r\n", "%-1\r\n", "|1000000000\r\n", "=1000000000\r\n", "(" + strings.Repeat("9", 100_000) + "\r\n", strings.Repeat("*1\r\n", 100_000), strings.Repeat("%1\r\n+a\r\n", 10_000),
	"+" + strings.Repeat("x", 1<<20) + "\r\n", "-" + strings.Repeat("x", 1<<20) + "\r\n", ":99999999999999999999\r\n", ":1.5\r\n", ":\r\n", "$\r\n", "*\r\n", "$5\r\nhelloXX", "\x00\xff\r\n", "\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n",
	"#x\r\n", ",nan\r\n", "_\r\n", "$?\r\n;1000000000\r\n", "*?\r\n", "+OK\r\n+OK\r\n+OK\r\n", "*3\r\n:-1\r\n:9223372036854775807\r\n:-9223372036854775808\r\n", "-MOVED 99999 256.0.0.1:0\r\n", "-ASK 0 x\r\n", "-LOADING\r\n", "-READONLY no\r\n",
}
