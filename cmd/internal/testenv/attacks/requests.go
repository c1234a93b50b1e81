package attacks

// Queries are query strings that servers parse differently.
var Queries = []string{
	";", "a=1;b=2", "a=1;a=2", "%", "a=%", "a=%z", "a=%zz", "%zz=1", "a=%2", "a=%00", "a=1&a=2", "a[]=1", "a=1&&b=2", "=1", "&", "a=1%26b=2", "a=%c0%ae", "?a=1", "a=1#b", "a=+1", "a=%u0031", "\\", "a=1\\&b=2",
}

// Cookies are header fields with a duplicate or malformed cookie.
var Cookies = []string{
	"Cookie: who=a; who=b", "Cookie: who=a\r\nCookie: who=b", "Cookie: who=\"a\"; who=b", "Cookie: who", "Cookie: =a", "Cookie: who=a,who=b", "Cookie: who =a", "Cookie: WHO=a; who=b", "Cookie: who=a;who=b", "Cookie: who=a\x00",
}

// Nominations are Connection fields that name fields which determine identity or framing, with those fields.
var Nominations = []string{
	"Connection: X-Forwarded-For\r\nX-Forwarded-For: 192.0.2.1", "Connection: Forwarded\r\nForwarded: for=192.0.2.1", "Connection: X-Real-Ip\r\nX-Real-Ip: 192.0.2.1", "Connection: X-Api-Key\r\nX-Api-Key: spent", "Connection: Authorization\r\nAuthorization: Basic YTpi",
	"Connection: Cookie\r\nCookie: who=a", "Connection: Host", "Connection: Content-Length", "Connection: Transfer-Encoding", "Connection: close, X-Api-Key\r\nX-Api-Key: spent", "Connection: ,,, ;\r\nX-Api-Key: spent", "Connection: X-Request-Id\r\nX-Request-Id: 1",
	"Connection: Idempotency-Key\r\nIdempotency-Key: 1", "Connection: Sluice-Attempt\r\nSluice-Attempt: 9",
}

// TrailerNames are fields that must not be accepted as trailers, and invalid names.
var TrailerNames = []string{
	"Content-Length", "Transfer-Encoding", "Host", "X-Api-Key", "Authorization", "Cookie", "X-Forwarded-For", "Forwarded", "X-Real-Ip", "Idempotency-Key", "Sluice-Attempt", "X-Request-Id", "Content-Type", "Trailer", "Te", "a b", "a\x00", "", "X_Y", ":path",
}

// TrailerRequests returns a request for each of TrailerNames, with that trailer announced and sent.
func TrailerRequests(path string) (all []string) {
	for _, name := range TrailerNames {
		all = append(all, "POST "+path+" HTTP/1.1\r\nHost: a\r\nTrailer: "+name+"\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"+name+": 192.0.2.1\r\n\r\n")
	}
	return all
}

// Requests returns every request of the corpus that is one complete text. It uses path if the attack does not determine
// the path.
func Requests(path string) (all []string) {
	for name, text := range Smuggled() {
		if len(name) < 4 || name[:4] != "half" {
			all = append(all, text)
		}
	}
	get := func(target, fields string) {
		all = append(all, "GET "+target+" HTTP/1.1\r\nHost: a\r\n"+fields+"\r\n\r\n")
	}
	for _, s := range PathSpellings() {
		get(s, "X: y")
	}
	for _, q := range Queries {
		get(path+"?"+q, "X: y")
	}
	for _, set := range [][]string{AddressLies, KeySpellings, Cookies, Nominations} {
		for _, fields := range set {
			get(path, fields)
		}
	}
	for _, s := range SizedRequests() {
		if s.Name != "URL without end" {
			all = append(all, s.Text)
		}
	}
	return append(append(all, TrailerRequests(path)...), OtherTargets("127.0.0.1:9")...)
}
