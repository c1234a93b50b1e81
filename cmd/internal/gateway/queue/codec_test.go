package queue

import (
	"bytes"
	"net/http"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func FuzzItem(f *testing.F) {
	f.Add(encodeItem(&Item{ID: "i", Rule: "r", Key: "\xff", Header: http.Header{"A": {"1", "2"}}, Claims: map[string]string{"a": "b"}, Body: []byte("x")}))
	f.Add([]byte{2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		it, err := decodeItem(b)
		if err != nil {
			return
		}
		again, err := decodeItem(encodeItem(it))
		if err != nil || !reflect.DeepEqual(it, again) {
			t.Errorf("%+v became %+v, %v", it, again, err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add((&itemState{state: Dead, err: "e", result: &Result{Status: 500, Body: []byte("x")}, itemHeader: &itemHeader{rule: "r"}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeItemState(b)
		if err != nil {
			return
		}
		again, err := decodeItemState(r.encode())
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}
	})
}

func TestItemCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.MapOfN(rapid.String(), rapid.String(), 1, 4)
		raw := rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) })
		it := &Item{
			ID: raw.Draw(t, "id"), Rule: raw.Draw(t, "rule"), Key: raw.Draw(t, "key"), Ordered: rapid.Bool().Draw(t, "ordered"), Method: "GET",
			Scheme: "https", Host: raw.Draw(t, "host"), Target: raw.Draw(t, "target"), RemoteAddr: "a", IdempotencyKey: raw.Draw(t, "own"),
			Header: http.Header(rapid.MapOfN(raw, rapid.SliceOfN(raw, 1, 3), 1, 4).Draw(t, "header")),
			Claims: texts.Draw(t, "claims"), Attributes: texts.Draw(t, "attributes"), Attempts: rapid.Int().Draw(t, "attempts"),
			Expires: time.UnixMilli(rapid.Int64Range(1, 1<<45).Draw(t, "expires")).UTC(), Results: time.Duration(rapid.Int64().Draw(t, "results")),
			Accepted: time.UnixMilli(1).UTC(), Body: rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "body"),
		}
		earlier, length := *it, len(encodeItem(it)) // as an earlier version writes it, without the following fields
		if rapid.Bool().Draw(t, "withholds") {
			it.Withheld = rapid.SliceOfN(raw, 1, 3).Draw(t, "withheld")
			for range rapid.IntRange(0, 2).Draw(t, "charges") {
				it.Charges = append(it.Charges, Charge{raw.Draw(t, "rule"), raw.Draw(t, "key"), raw.Draw(t, "tier"), rapid.Int64().Draw(t, "cost")})
			}
		}
		b := encodeItem(it)
		got, err := decodeItem(b)
		if err != nil || !reflect.DeepEqual(it, got) {
			t.Fatalf("%+v became %+v, %v", it, got, err)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		switch got, err := decodeItem(b[:cut]); {
		case cut == length && (err != nil || !reflect.DeepEqual(&earlier, got)):
			t.Fatalf("an item of an earlier version, %+v, became %+v, %v", earlier, got, err)
		case cut != length && err == nil:
			t.Fatal("truncated data is accepted")
		}
	})
}

func TestCipherBindsSubject(t *testing.T) {
	s, err := newCipher(bytes.Repeat([]byte{1}, KeySize))
	if err != nil {
		t.Fatal(err)
	}
	b := s.encrypt("a", []byte("x"))
	if got, err := s.decrypt("a", b); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := s.decrypt("b", b); err == nil {
		t.Error("data is decrypted under another subject")
	}
	if _, err := newCipher([]byte("short")); err == nil {
		t.Error("a short key is accepted")
	}
}
