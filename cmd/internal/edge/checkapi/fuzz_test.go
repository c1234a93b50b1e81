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

// FuzzBody: an accepted body is valid JSON for encoding/json too, with the same fields, and matches the OpenAPI file. All
// other bodies are rejected without a panic. All responses match the OpenAPI file.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"attributes":{"method":"POST","path":"/posts","host":"h","ip":"192.0.2.1","headers":{"X-User":["a"]},"query":{},"cookies":{"a":"b"},"claims":{"sub":"\u00e9"},"attributes":{"r":"e"}},"cost":1,"peek":false}`,
		`{"domain":"messaging","descriptors":[[{"key":"message_type","value":"a"}]],"cost":0}`,
		`{"checks":[{"attributes":{}},{"attributes":{"path":"/tokens"},"cost":3}]}`,
		`{"attributes":{},"ttl":"5m"}`, `{"reservation":"AQ","actual_cost":0}`, `{"attributes":{"path":"\ud83d\ude00"}}`, `{"attributes":{"claims":{"a":"\ud800\ud800\udc00"}}}`, "{\"attributes\":{\"claims\":{\"a\":\"\xff\"}}}", "{", "\x00", `{"a":1e9}`,
	} {
		f.Add([]byte(seed))
	}
	s := withRules(f, someRules...)
	c := theContract(f)
	where, _ := c.at("paths", "/v1/check", "post", "requestBody", "content", "application/json", "schema")
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/v1/check", "/v1/reserve", "/v1/settle"} {
			if a := s.ask(t, path, string(body)); a.status >= 500 {
				t.Errorf("%s returns %d %s", path, a.status, a.body)
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
			t.Fatalf("accepted, but by the OpenAPI file %v", err)
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		var want checkapi.Plain
		if err := d.Decode(&want); err != nil {
			t.Fatalf("accepted, but not by encoding/json: %v", err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			t.Fatalf("accepted with data after the object: %v", err)
		}
		plain := dump(t, want.Normal())
		if strings.Contains(plain, `\ufffd`) || strings.Contains(plain, "\uFFFD") {
			return // encoding/json replaces invalid UTF-8, and this package does not
		}
		if got, want := dump(t, took), plain; got != want {
			t.Fatalf("parsed as\n%s, by encoding/json as\n%s", got, want)
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

// FuzzToken: forged reservations are rejected. Payloads with a valid MAC are decoded or rejected without a panic, and
// reservations survive a round trip.
func FuzzToken(f *testing.F) {
	now := time.UnixMilli(1_800_000_000_000)
	f.Add("", []byte("rule"), "key", "slot", int64(1), int64(2), true)
	f.Add("", append([]byte{2}, make([]byte, 40)...), "key", "", int64(1)<<50, int64(5), false)
	f.Add("AQAA", []byte{1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}, "\x00", "", int64(-1), int64(1)<<50, false)
	f.Fuzz(func(t *testing.T, text string, payload []byte, key, slot string, at, charged int64, fixed bool) {
		if err := checkapi.ReadToken(text, now); err == nil {
			t.Fatalf("%q is accepted", text)
		}
		_ = checkapi.ReadAuthentic(payload, now) // as an instance of another version with the secret could write it
		if err := checkapi.RoundTrip(string(payload), key, slot, at, charged, fixed, now); err != nil {
			t.Fatal(err)
		}
	})
}

// A truncated token is rejected, even with a valid MAC.
func TestCutTokens(t *testing.T) {
	payload := checkapi.Payload()
	for n := range payload {
		if err := checkapi.ReadAuthentic(payload[:n], time.UnixMilli(0)); err == nil && n != checkapi.TokenHead {
			t.Errorf("%d of %d bytes are accepted", n, len(payload))
		}
	}
	if err := checkapi.ReadAuthentic(payload, time.UnixMilli(0)); err != nil {
		t.Error(err)
	}
}
