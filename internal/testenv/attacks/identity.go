package attacks

import "strings"

// AddressLies are fields by which a client pretends to have another address, or asks for another path: 192.0.2.x.
var AddressLies = []string{
	"X-Forwarded-For: 192.0.2.1", "x-forwarded-for: 192.0.2.1", "X-FORWARDED-FOR: 192.0.2.1", "X-Forwarded-For: 192.0.2.1, 127.0.0.1", "X-Forwarded-For: 127.0.0.1, 192.0.2.1",
	"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2", "X-Forwarded-For:\t192.0.2.1", "X-Forwarded-For: \"192.0.2.1\"", "X-Forwarded-For: 192.0.2.1:80", "X-Forwarded-For: [::ffff:192.0.2.1]:80",
	"X_Forwarded_For: 192.0.2.1", "X-Forwarded_For: 192.0.2.1", "X-Forwarded-For : 192.0.2.1", "HTTP_X_FORWARDED_FOR: 192.0.2.1", "Connection: X-Forwarded-For\r\nX-Forwarded-For: 192.0.2.1",
	"Forwarded: for=192.0.2.1", "Forwarded: for=\"192.0.2.1:80\"", "Forwarded: for=\"[::ffff:192.0.2.1]\"", "Forwarded: for=192.0.2.1, for=127.0.0.1", "forwarded: FOR=192.0.2.1;by=192.0.2.2;host=evil",
	"Forwarded: for=127.0.0.1\r\nForwarded: for=192.0.2.1", "X-Real-IP: 192.0.2.1", "X_Real_IP: 192.0.2.1", "X-Client-IP: 192.0.2.1", "X-Cluster-Client-IP: 192.0.2.1", "True-Client-IP: 192.0.2.1",
	"CF-Connecting-IP: 192.0.2.1", "CF-Connecting-IPv6: 2001:db8::192.0.2.1", "Fastly-Client-IP: 192.0.2.1", "Fly-Client-IP: 192.0.2.1", "X-Azure-ClientIP: 192.0.2.1", "X-Azure-SocketIP: 192.0.2.1",
	"X-AppEngine-User-IP: 192.0.2.1", "X-Envoy-External-Address: 192.0.2.1", "X-Originating-IP: 192.0.2.1", "X-Remote-IP: 192.0.2.1", "X-Remote-Addr: 192.0.2.1", "Remote-Addr: 192.0.2.1",
	"X-Forwarded: for=192.0.2.1", "Forwarded-For: 192.0.2.1", "X-ProxyUser-Ip: 192.0.2.1", "WL-Proxy-Client-IP: 192.0.2.1", "Proxy-Client-IP: 192.0.2.1", "Client-IP: 192.0.2.1",
	"X-Forwarded-Host: 192.0.2.1", "X-Forwarded-Proto: 192.0.2.1", "X-Forwarded-Port: 192.0.2.1", "X-Forwarded-Server: 192.0.2.1", "X-Forwarded-Prefix: /192.0.2.1", "X-Forwarded-Uri: /192.0.2.1",
	"X-Original-URL: /192.0.2.1", "X-Original-URI: /192.0.2.1", "X-Rewrite-URL: /192.0.2.1", "X-Original-Host: 192.0.2.1", "X-Host: 192.0.2.1",
	"X-Forwarded-For: 192.0.2.1" + strings.Repeat(", 127.0.0.1", 3000), "Proxy-Connection: X-Forwarded-For\r\nX-Forwarded-For: 192.0.2.1",
}

// KeySpellings are fields that spell the API key "spent", in ways that a server may read as that key, as another or as none.
var KeySpellings = []string{
	"X-Api-Key: spent", "x-api-key: spent", "X-API-KEY: spent", "x-ApI-kEy:spent", "X-Api-Key:  spent", "X-Api-Key: spent ", "X-Api-Key:\tspent\t", "X-Api-Key: spent\r\nX-Api-Key: other", "X-Api-Key: other\r\nX-Api-Key: spent",
	"X-Api-Key: spent\r\nX-Api-Key: spent", "X-Api-Key: other\r\nX_Api_Key: spent", "X_Api_Key: spent\r\nX-Api-Key: other2", "X-Api_Key: spent\r\nX-Api-Key: other3", "X-Api-Key: spent\r\nConnection: X-Api-Key",
	"Connection: X-Api-Key\r\nX-Api-Key: spent", "X-Api-Key : spent", " X-Api-Key: spent", "X-Api-Key:\r\n spent", "X-Api-Key: spent\x00", "X-Api-Key: spent, other", "X-Api-Key: \"spent\"", "X-Api-Key: SPENT", "X-Api-Key: sp\xc3\xa9nt",
	"X-Api-Key: spent\x0b", "Connection: close, x-api-key\r\nX-Api-Key: spent", "Proxy-Connection: X-Api-Key\r\nX-Api-Key: spent", "Te: trailers\r\nX-Api-Key: spent", "X-Api-Key;: spent",
}
