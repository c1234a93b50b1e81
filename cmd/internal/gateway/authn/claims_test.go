package authn

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func claimsOf(t testing.TB, text string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestFlatten(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "",
		`{"sub":"ada","n":1.50,"big":12345678901234567890,"exp":1e3,"ok":true,"no":null,"empty":""}`: `big=12345678901234567890 empty= exp=1e3 n=1.50 ok=true sub=ada`,
		`{"team":{"id":7,"lead":{"name":"bob"}}}`:                                                    `team.id=7 team.lead.name=bob`,
		`{"roles":["a","b c",1,true,null,{"x":1},["y"]]}`:                                            `roles=["a","b c",1,true,null,{"x":1},["y"]] roles.0=a roles.1=b c roles.2=1 roles.3=true`,
		`{"aud":[]}`:                                                       `aud=[]`,
		`{"html":["<a&b>"]}`:                                               `html=["<a&b>"] html.0=<a&b>`,
		`{"https://example.com/plan":"pro"}`:                               `https://example.com/plan=pro`,
		`{"a":{"b":"inner"},"a.b":"top"}`:                                  `a.b=top`,
		`{"u":{"x.y":"1"},"plan":"free"}`:                                  `plan=free`,
		`{"a.b":{"c":"1"},"a":{"b":{"c":"2"}}}`:                            `a.b.c=2`,
		`{"a":{"b":{"c":{"d":{"e":{"f":{"g":{"h":{"i":"deep"}}}}}}}}}`:     ``,
		`{"a":{"b":{"c":{"d":{"e":{"f":{"g":{"h":"deep enough"}}}}}}}}`:    `a.b.c.d.e.f.g.h=deep enough`,
		fmt.Sprintf(`{"a":%q}`, strings.Repeat("x", 4096)):                 "a=" + strings.Repeat("x", 4096),
		fmt.Sprintf(`{"a":%q}`, strings.Repeat("x", 4097)):                 "too much",
		fmt.Sprintf(`{"a":[%s1]}`, strings.Repeat("1,", 254)):              "too much at 256",
		fmt.Sprintf(`{"a":{"b":[%s1]},"c":1}`, strings.Repeat(`"x",`, 99)): "too many",
	} {
		flat := flatten(claimsOf(t, text))
		var all []string
		for _, name := range slices.Sorted(maps.Keys(flat)) {
			all = append(all, name+"="+flat[name])
		}
		got := strings.Join(all, " ")
		switch want {
		case "too much":
			if flat != nil {
				t.Errorf("%.60s is not too much", text)
			}
		case "too much at 256": // 255 numbers and the list
			if len(flat) != 256 || flatten(claimsOf(t, strings.Replace(text, "1]", "1,1]", 1))) != nil {
				t.Errorf("%d claims", len(flat))
			}
		case "too many":
			if len(flat) != 102 {
				t.Errorf("%d claims", len(flat))
			}
		default:
			if got != want || flat == nil {
				t.Errorf("%.80s: got %.200s, want %.200s", text, got, want)
			}
		}
	}
}
