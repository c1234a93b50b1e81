package table

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// filled returns a table with keys of all kinds and blocks and, with flood, a busy sketch.
func filled(t testing.TB, flood int) *Table {
	tb := New(Config{MaxBytes: MinBytes})
	for i := range 300 {
		for _, p := range allParams {
			for range 3 {
				take(tb, fmt.Sprint(i), p, start, step.Request{Cost: 1})
			}
		}
	}
	tb.Block(tb.Hash(group.RuleID{A: 1, B: 2}, "blocked"), start, start+minute)
	for i := range flood {
		take(tb, fmt.Sprint("flood", i), &windowParams, start, step.Request{Cost: 1})
	}
	return tb
}

func save(t testing.TB, tb *Table) []byte {
	var b bytes.Buffer
	if err := tb.Save(&b, start); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSnapshotRoundTrip(t *testing.T) {
	for _, flood := range []int{0, 50_000} {
		for _, bytesAfter := range []int64{MinBytes, 4 << 20} {
			tb := filled(t, flood)
			back, err := Load(bytes.NewReader(save(t, tb)), Config{MaxBytes: bytesAfter}, start)
			if err != nil {
				t.Fatal(err)
			}
			checkOrder(t, back)
			peek := step.Request{}
			for i := range 300 {
				for _, p := range allParams {
					key := fmt.Sprint(i)
					if got, want := take(back, key, p, start, peek), take(tb, key, p, start, peek); got != want {
						t.Fatalf("kind %d key %s: %+v, was %+v", p.Kind, key, got, want)
					}
				}
			}
			if a := take(back, "blocked", &windowParams, start, step.Request{Cost: 1}); a.Allowed {
				t.Error("the block was lost")
			}
			for i := range flood {
				key := fmt.Sprint("flood", i)
				got, was := take(back, key, &windowParams, start, peek), take(tb, key, &windowParams, start, peek)
				if got.Remaining > was.Remaining {
					t.Fatalf("%s: %d remain, %d did", key, got.Remaining, was.Remaining)
				}
			}
		}
	}
}

// A truncated or changed snapshot is rejected, wherever it was cut or changed.
func TestSnapshotRefusesDamage(t *testing.T) {
	whole := save(t, filled(t, 0))
	for n := 0; n < len(whole); n += 1 + len(whole)/soak(60) {
		if _, err := Load(bytes.NewReader(whole[:n]), Config{MaxBytes: MinBytes}, start); !errors.Is(err, ErrSnapshot) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(whole), err)
		}
		damaged := bytes.Clone(whole)
		damaged[n] ^= 0x10
		if _, err := Load(bytes.NewReader(damaged), Config{MaxBytes: MinBytes}, start); err == nil {
			t.Fatalf("byte %d changed: accepted", n)
		}
	}
	if _, err := Load(bytes.NewReader(append(bytes.Clone(whole), 0)), Config{MaxBytes: MinBytes}, start); err == nil {
		t.Error("with a byte more: accepted")
	}
	if _, err := Load(bytes.NewReader([]byte("#!/bin/sh\n")), Config{}, start); !errors.Is(err, ErrSnapshot) {
		t.Errorf("a shell script: %v", err)
	}
}

func TestSnapshotLargerThanMaxBytes(t *testing.T) {
	tb := New(Config{MaxBytes: 8 << 20})
	for i := range 60_000 {
		take(tb, fmt.Sprint(i), &windowParams, start, step.Request{Cost: 1})
	}
	if _, err := Load(bytes.NewReader(save(t, tb)), Config{MaxBytes: MinBytes}, start); !errors.Is(err, errFull) {
		t.Errorf("8 MiB of keys into 1 MiB: %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(save(f, filled(f, 0))[:4096])
	f.Add([]byte(snapshotMagic))
	small := New(Config{MaxBytes: MinBytes})
	take(small, "k", &logParams, start, step.Request{Cost: 1})
	f.Add(save(f, small))
	f.Fuzz(func(t *testing.T, b []byte) {
		tb, err := Load(bytes.NewReader(b), Config{MaxBytes: MinBytes}, start)
		if err != nil {
			return
		}
		checkOrder(t, tb)
		take(tb, "k", &logParams, start, step.Request{Cost: 1})
	})
}
