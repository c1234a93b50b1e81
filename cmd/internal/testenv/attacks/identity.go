package attacks

import "strings"

// AddressLies are header fields by which a client claims another address, 192.0.2.x, or another path.
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

// KeySpellings are header fields with spellings of the API key "spent" that a server may read as that key, as another
// or as none.
var KeySpellings = []string{
	"X-Api-Key: spent", "x-api-key: spent", "X-API-KEY: spent", "x-ApI-kEy:spent", "X-Api-Key:  spent", "X-Api-Key: spent ", "X-Api-Key:\tspent\t", "X-Api-Key: spent\r\nX-Api-Key: other", "X-Api-Key: other\r\nX-Api-Key: spent",
	"X-Api-Key: spent\r\nX-Api-Key: spent", "X-Api-Key: other\r\nX_Api_Key: spent", "X_Api_Key: spent\r\nX-Api-Key: other2", "X-Api_Key: spent\r\nX-Api-Key: other3", "X-Api-Key: spent\r\nConnection: X-Api-Key",
	"Connection: X-Api-Key\r\nX-Api-Key: spent", "X-Api-Key : spent", " X-Api-Key: spent", "X-Api-Key:\r\n spent", "X-Api-Key: spent\x00", "X-Api-Key: spent, other", "X-Api-Key: \"spent\"", "X-Api-Key: SPENT", "X-Api-Key: sp\xc3\xa9nt",
	"X-Api-Key: spent\x0b", "Connection: close, x-api-key\r\nX-Api-Key: spent", "Proxy-Connection: X-Api-Key\r\nX-Api-Key: spent", "Te: trailers\r\nX-Api-Key: spent", "X-Api-Key;: spent",
}

// CookieSpellings are header fields with spellings of the cookie sess=spent that a server may accept.
var CookieSpellings = []string{
	"Cookie: sess=spent", "cookie: sess=spent", "Cookie:sess=spent", "Cookie: a=1; sess=spent; b=2", "Cookie: a=1\r\nCookie: sess=spent", "Cookie: sess=%73pent", "Cookie: sess=spen%74", "Cookie: sess=%73%70%65%6e%74",
	"Cookie: sess=%73%70%65%6E%74", "Cookie: sess= spent", "Cookie: sess=\tspent", "Cookie: sess=spent ; a=1", "Cookie: sess=spent\t; a=1", "Cookie: sess=\"spent\"", "Cookie: sess= \"spent\" ", "Cookie: sess=\" spent \"", "Cookie: sess=\"%73pent\"",
	"Cookie: sess=%22spent%22", "Cookie: sess=%20spent", "Cookie: sess=spent%20", "Cookie: sess=spent+", "Cookie: sess=spent%00", "Cookie: sess=spent%", "Cookie: sess=%u0073pent", "Cookie: SESS=spent", "Cookie: Sess=%73pent",
	"Cookie:  sess =spent", "Cookie: \tsess\t=spent", "Cookie: %73ess=spent", "Cookie: s%65ss=spent", "Cookie: sess[]=spent", "Cookie: sess[0]=spent", "Cookie: sess=other; sess=spent", "Cookie: sess=spent; SESS=other", "Cookie: sess=other; %73ess=spent",
	"Cookie: a=1, sess=spent", "Cookie: a=1,sess=spent", "Cookie: a=1 sess=spent", "Cookie: sess=spent,a=1", "Cookie: sess=spent a=1", "Cookie: a=\"1; sess=spent\"",
}

// QuerySpellings are queries with spellings of user_id=spent that a server may accept.
var QuerySpellings = []string{
	"user_id=spent", "a=1&user_id=spent", "user%5fid=spent", "user%5Fid=%73pent", "USER_ID=spent", "User_Id=spent", "user.id=spent", "user%2eid=spent", "user+id=spent", "user%20id=spent", "user[id=spent", "user%5Bid=spent", "+user_id=spent", "%20user_id=spent",
	"user_id+=spent", "user_id[]=spent", "user_id%5B0%5D=spent", "user.id[]=spent", "User.ID=spent", "user_id=other&user_id=spent", "user_id=other&user.id=spent", "user_id=other&USER_ID=spent", "user_id=other;user_id=spent", "a=1;user_id=spent",
	"user_id=spent;", "user%255fid=spent", "user_id%00=spent", "user_id=%zz&user_id=spent",
}
