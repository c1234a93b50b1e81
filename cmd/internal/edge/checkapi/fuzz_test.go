package checkapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sluiceproject/sluice/cmd/internal/edge/checkapi"
)

// FuzzBody: a body that is taken is JSON to the standard library too, with the same fields, and sound by the OpenAPI file;
// every other one is refused without a panic. Answers are as the OpenAPI file says, whatever is sent.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"attributes":{"method":"POST","path":"/posts","host":"h","ip":"192.0.2.1","headers":{"X-User":["a"]},"query":{},"cookies":{"a":"b"},"claims":{"sub":"\u00e9"},"attributes":{"r":"e"}},"cost":1,"peek":false}`,
		`{"domain":"messaging","descriptors":[[{"key":"message_type","value":"a"}]],"cost":0}`,
		`{"checks":[{"attributes":{}},{"attributes":{"path":"/tokens"},"cost":3}]}`,
		`{"attributes":{},"ttl":"5m"}`, `{"reservation":"AQ","actual":0}`, `{"attributes":{"path":"\ud83d\ude00"}}`, `{"attributes":{"claims":{"a":"\ud800\ud800\udc00"}}}`, "{\"attributes\":{\"claims\":{\"a\":\"\xff\"}}}", "{", "\x00", `{"a":1e9}`,
	} {
		f.Add([]byte(seed))
	}
	s := withRules(f, someRules...)
	c := theContract(f)
	where, _ := c.at("paths", "/v1/check", "post", "requestBody", "content", "application/json", "schema")
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/v1/check", "/v1/reserve", "/v1/settle"} {
			if a := s.ask(t, path, string(body)); a.status >= 500 {
				t.Errorf("%s answers %d %s", path, a.status, a.body)
			}
		}
		took, err := checkapi.Parse(body)
		if err != nil {
			return
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err == nil {
			err = c.validate(where, value)
		}
		if err != nil {
			t.Fatalf("it is taken, but by the OpenAPI file %v", err)
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		var want checkapi.Plain
		if err := d.Decode(&want); err != nil {
			t.Fatalf("it is taken, but not by the standard library: %v", err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			t.Fatalf("something follows: %v", err)
		}
		plain := dump(t, want.Normal())
		if strings.Contains(plain, `\ufffd`) || strings.Contains(plain, "\uFFFD") {
			return // in place of what is not UTF-8, which we keep
		}
		if got, want := dump(t, took), plain; got != want {
			t.Fatalf("read as\n%s, the standard library reads\n%s", got, want)
		}
	})
}

func dump(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// FuzzToken: whatever is sent in place of a reservation is refused, and what is authentic is read back as it was
// written, or refused, but never panics.
func FuzzToken(f *testing.F) {
	now := time.UnixMilli(1_800_000_000_000)
	f.Add("", []byte("rule"), "key", "slot", int64(1), int64(2), true)
	f.Add("", append([]byte{2}, make([]byte, 40)...), "key", "", int64(1)<<50, int64(5), false)
	f.Add("AQAA", []byte{1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}, "\x00", "", int64(-1), int64(1)<<50, false)
	f.Fuzz(func(t *testing.T, text string, payload []byte, key, slot string, at, charged int64, fixed bool) {
		if err := checkapi.ReadToken(text, now); err == nil {
			t.Fatalf("%q is taken", text)
		}
		_ = checkapi.ReadAuthentic(payload, now) // what a process with the secret but another version could write
		if err := checkapi.RoundTrip(string(payload), key, slot, at, charged, fixed, now); err != nil {
			t.Fatal(err)
		}
	})
}

// Of a token that is cut, also by somebody with the secret, nothing is made up.
func TestCutTokens(t *testing.T) {
	payload := checkapi.Payload()
	for n := range payload {
		if err := checkapi.ReadAuthentic(payload[:n], time.UnixMilli(0)); err == nil && n != checkapi.TokenHead {
			t.Errorf("%d of %d bytes are taken", n, len(payload))
		}
	}
	if err := checkapi.ReadAuthentic(payload, time.UnixMilli(0)); err != nil {
		t.Error(err)
	}
}
