package logs

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
)

func TestKeys(t *testing.T) {
	line := `{"time":1767366245,"ip":"192.0.2.77","user":"ada","method":"GET","url":"https://h.example/p?q=1","tenant":"acme","http_x_api_key":"k1","a":{"b":"c"}}`
	all, _ := read(t, Options{}, line)
	v6 := Entry{Record: accesslog.Record{Client: netip.MustParseAddr("2001:db8:1:2:3::4")}}
	host := Entry{ClientName: "www.example.com", Record: accesslog.Record{Client: HostAddr("www.example.com")}}
	for _, c := range []struct {
		expr string
		e    *Entry
		want string // parts, masked
	}{
		{"ip", &all[0], "[{ip 192.0.2.77}] ip=192.0.*.*"},
		{"ip/24", &all[0], "[{ip/24 192.0.2.0/24}] ip/24=192.0.*.*"},
		{"ip/48", &all[0], "[{ip/48 192.0.2.77}] ip/48=192.0.*.*"},
		{"ip", &v6, "[{ip 2001:db8:1:2::/64}] ip=2001:db8:*"},
		{"ip/24", &v6, "[{ip/24 2001:db8:1:2::/64}] ip/24=2001:db8:*"},
		{"ip/48", &v6, "[{ip/48 2001:db8:1::/48}] ip/48=2001:db8:*"},
		{"ip/24", &host, "[{ip/24 www.example.com}] ip/24=ww*"},
		{"forwarded", &all[0], "none"},
		{"user", &all[0], "[{user ada}] user=ad*"},
		{"user", &v6, "none"},
		{"host+path+method", &all[0], "[{host h.example} {path /p} {method GET}] host=h.* path=/p method=GE*"},
		{"header:X-Api-Key", &all[0], "[{header:X-Api-Key k1}] header:X-Api-Key=*"},
		{"header:x-api-key+ip", &all[0], "[{header:x-api-key k1} {ip 192.0.2.77}] header:x-api-key=* ip=192.0.*.*"},
		{"field:tenant", &all[0], "[{field:tenant acme}] field:tenant=ac*"},
		{"field:a.b", &all[0], "[{field:a.b c}] field:a.b=*"},
		{"field:none+ip", &all[0], "none"},
	} {
		key, err := ParseKey(c.expr)
		if err != nil {
			t.Fatal(err)
		}
		got := "none"
		if k, ok := key(c.e); ok {
			parts := KeyParts(c.expr, k)
			got = fmt.Sprint(parts)
			for _, p := range parts {
				got += " " + p.Masked()
			}
		}
		if want := strings.ReplaceAll(c.want, "path=/p", "path=*"); got != want {
			t.Errorf("%s: got %s, want %s", c.expr, got, want)
		}
	}
	for _, bad := range []string{"", "ip+", "ips", "ip/0", "ip/129", "ip/x", "ip:x", "header:", "header", "field", "user:x", "forwarded/"} {
		if _, err := ParseKey(bad); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("key %q: ", bad)) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Requests share a key of two parts only if both are equal.
func FuzzKey(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Add("a+", "b", "a", "+b")
	f.Add("\x00", "", "", "\x00")
	key, err := ParseKey("user+path")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, u1, p1, u2, p2 string) {
		k1, ok1 := key(&Entry{Record: accesslog.Record{User: u1, Path: p1}})
		k2, ok2 := key(&Entry{Record: accesslog.Record{User: u2, Path: p2}})
		if ok1 != (u1 != "" && p1 != "") || ok1 && ok2 && (k1 == k2) != (u1 == u2 && p1 == p2) {
			t.Errorf("%q %q has the key %q, %q %q has %q", u1, p1, k1, u2, p2, k2)
		}
		if ok1 {
			if parts := KeyParts("user+path", k1); len(parts) != 2 || parts[0].Value != u1 || parts[1].Value != p1 {
				t.Errorf("%q %q has the parts %q", u1, p1, parts)
			}
		}
	})
}

func TestCost(t *testing.T) {
	all, _ := read(t, Options{Columns: "cost=c"}, `{"time":1767366245,"bytes_out":5,"a":"2","b":1.2,"c":3,"n":-1,"x":"y","big":9223372036854775807,"o":{"i":4}}`)
	for name, want := range map[string]int64{
		"bytes_out": 5, "bytes_in": 0, "cost": 3, "field:a": 2, "field:b": 2, "field:a+b": 4, "field:a+field:o.i": 6, "field:a+o.i": 6, "bytes_out+field:a": 7,
		"field:big": 1<<63 - 1, "field:n": -1, "field:x": -1, "field:none": -1, "field:a+none": -1, "field:big+a": -1, "": -1, "other": -1,
	} {
		n, ok := all[0].Cost(name)
		if ok != (want >= 0) || ok && n != want {
			t.Errorf("%q: %d, %v, want %d", name, n, ok, want)
		}
	}
}

// Headers are found by the names that servers give them, and other fields are not mistaken for headers.
func TestHeaders(t *testing.T) {
	for line, want := range map[string]string{
		`{"http_x_api_key":"k"}`: "k", `{"x_api_key":"k"}`: "k", `{"X-API-Key":"k"}`: "k", `{"request_X-Api-Key":"k"}`: "k", `{"request":{"headers":{"X-Api-Key":["a","b"]}}}`: "a, b",
		`{"resp_headers":{"X-Api-Key":"k"}}`: "", `{"origin_X-Api-Key":"k"}`: "", `{"http_x_api_key":"-"}`: "", `{"sent_http_x_api_key":"k"}`: "",
	} {
		all, _ := read(t, Options{}, `{"time":1767366245,"status":200,`+line[1:])
		if got, ok := all[0].Header("X-Api-Key"); got != want || ok != (want != "") {
			t.Errorf("%s: %q", line, got)
		}
	}
	all, _ := read(t, Options{}, `{"time":1767366245,"status":200,"request_id":"7"}`)
	for _, name := range []string{"Status", "Time", "Id"} {
		if got, ok := all[0].Header(name); ok {
			t.Errorf("%s is %q", name, got)
		}
	}
}
