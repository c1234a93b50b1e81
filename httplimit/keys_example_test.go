package httplimit_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/sluiceproject/sluice/httplimit"
)

// The keys of one request by each function.
func ExampleKeyFunc() {
	mux := http.NewServeMux()
	mux.HandleFunc("/tenants/{tenant}/orders", func(_ http.ResponseWriter, r *http.Request) {
		for _, key := range []httplimit.KeyFunc{
			httplimit.Global(),
			httplimit.ByIP(),
			httplimit.ByHeader("X-User"),
			httplimit.ByCookie("session"),
			httplimit.ByQuery("api_key"),
			httplimit.ByPathValue("tenant"),
			httplimit.ByBasicAuthUser(),
			httplimit.ByFunc(func(r *http.Request) string { return r.Method }),
		} {
			value, err := key(r)
			fmt.Printf("%q %v\n", value, err)
		}
	})
	r := httptest.NewRequest("GET", "/tenants/acme/orders?api_key=k1", nil)
	r.Header.Set("X-User", "ada")
	r.AddCookie(&http.Cookie{Name: "session", Value: "s1"})
	r.SetBasicAuth("grace", "secret")
	mux.ServeHTTP(httptest.NewRecorder(), r)
	// Output:
	// "" <nil>
	// "192.0.2.1" <nil>
	// "ada" <nil>
	// "s1" <nil>
	// "k1" <nil>
	// "acme" <nil>
	// "grace" <nil>
	// "GET" <nil>
}

// A secret is hashed before it becomes a key, because Redis and Memcached store keys in clear text.
func ExampleKeyFunc_secret() {
	secret := httplimit.ByHeader("X-Api-Key")
	hashed := func(r *http.Request) (string, error) {
		key, err := secret(r)
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:]), err
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Api-Key", "k1")
	key, err := hashed(r)
	fmt.Println(key[:16], err)
	// Output: 6ab9f1eb8f7d3388 <nil>
}

// The client's address behind trusted proxies.
func ExampleIPOption() {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:443"
	r.Header.Set("X-Forwarded-For", "2001:db8:1:2::7, 10.0.0.2")
	r.Header.Set("X-Real-Ip", "198.51.100.7")

	proxies := httplimit.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8"))
	fmt.Println(httplimit.ByIP(proxies)(r))
	fmt.Println(httplimit.ByIP(proxies, httplimit.IPv6PrefixBits(48))(r))
	fmt.Println(httplimit.ByIP(httplimit.ProxyHops(2))(r))
	fmt.Println(httplimit.ByIP(proxies, httplimit.ClientIPHeader("X-Real-IP"))(r))

	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.UnixAddr{Name: "/run/app.sock", Net: "unix"}))
	r.RemoteAddr = "@"
	fmt.Println(httplimit.ByIP(proxies, httplimit.TrustUnixSockets())(r))
	// Output:
	// 2001:db8:1:2::/64 <nil>
	// 2001:db8:1::/48 <nil>
	// 2001:db8:1:2::/64 <nil>
	// 198.51.100.7 <nil>
	// 2001:db8:1:2::/64 <nil>
}

// Different parts have different keys, whatever characters they contain.
func ExampleJoinKey() {
	fmt.Println(httplimit.JoinKey("a:b", "c") == httplimit.JoinKey("a", "b:c"))
	// Output: false
}
