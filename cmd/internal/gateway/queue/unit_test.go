package queue

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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
		earlier, length := *it, len(encodeItem(it)) // of versions that know nothing of what follows
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
			t.Fatal("a part of it is read as if it were all")
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
		t.Error("it was opened in another's place")
	}
	if _, err := newCipher([]byte("short")); err == nil {
		t.Error("a short key is taken")
	}
}

// TestScheduler runs subqueues at random in virtual time: one of a subqueue asks at a time, ordered subqueues deliver one at a time and
// in order, nobody is tried before their time or when there is no room, and everybody is in the end.
func TestScheduler(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, now := newScheduler(2, rapid.Bool().Draw(t, "wide")), time.Unix(1000, 0)
		tries, limitedUntil := map[subqueueID]int{}, map[subqueueID]time.Time{}
		flights := map[subqueueID][]*entry{}
		var asking []*entry
		left, seq := 0, uint64(0)
		last := map[subqueueID]uint64{}
		add := func() {
			seq++
			e := &entry{id: fmt.Sprint(seq), seq: seq, itemHeader: itemHeader{rule: "r", key: fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "key")), ordered: rapid.Bool().Draw(t, "ordered")}}
			l.add(e)
			left++
		}
		pop := func() {
			e, _ := l.pop(now)
			if e == nil {
				return
			}
			n := subqueueID{e.rule, e.key, e.ordered}
			if tries[n]++; tries[n] > 1 || e.notBefore.After(now) || limitedUntil[n].After(now) || len(flights[n]) >= 2 {
				t.Fatalf("%v is tried: %d try, not before %v, no room before %v, %d fly, and it is %v", e.seq, tries[n], e.notBefore, limitedUntil[n], len(flights[n]), now)
			}
			if e.ordered && (len(flights[n]) > 0 || e.seq < last[n]) {
				t.Fatalf("%d is tried while %d fly, after %d", e.seq, len(flights[n]), last[n])
			}
			last[n] = e.seq
			asking = append(asking, e)
		}
		answer := func() {
			if len(asking) == 0 {
				return
			}
			i := rapid.IntRange(0, len(asking)-1).Draw(t, "which")
			e := asking[i]
			asking = slices.Delete(asking, i, i+1)
			n := subqueueID{e.rule, e.key, e.ordered}
			tries[n]--
			if rapid.Bool().Draw(t, "admitted") {
				flights[n] = append(flights[n], e)
				l.onStart(e)
				return
			}
			limitedUntil[n] = now.Add(time.Second)
			l.reschedule(e, limitedUntil[n], limitedUntil[n])
		}
		land := func() {
			for n, all := range flights {
				if len(all) == 0 {
					continue
				}
				e := all[0]
				flights[n] = all[1:]
				l.release(e)
				if rapid.IntRange(0, 3).Draw(t, "done") > 0 {
					left--
					return
				}
				e.notBefore = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "later")) * time.Second)
				l.add(e)
				return
			}
		}
		step := map[string]func(*rapid.T){
			"add": func(*rapid.T) { add() }, "pop": func(*rapid.T) { pop() }, "answer": func(*rapid.T) { answer() },
			"land": func(*rapid.T) { land() }, "time": func(*rapid.T) { now = now.Add(time.Second / 2) },
		}
		t.Repeat(step)
		for range 10_000 {
			if left == 0 {
				break
			}
			pop()
			for _, e := range asking {
				n := subqueueID{e.rule, e.key, e.ordered}
				tries[n]--
				flights[n] = append(flights[n], e)
				l.onStart(e)
			}
			asking = nil
			for n, all := range flights {
				for _, e := range all {
					l.release(e)
					left--
				}
				delete(flights, n)
			}
			now = now.Add(time.Second / 4)
		}
		if left != 0 || len(l.all) != 0 || len(l.due) != 0 {
			t.Fatalf("%d are left, %d lanes", left, len(l.all))
		}
	})
}

// What a power cut leaves of files, cut off or with rubbish at the end, is opened, and all before it is there.
func TestTornFiles(t *testing.T) {
	t.Parallel()
	for name, tear := range map[string]func(path string, size int64) error{
		"rubbish at the end": func(path string, _ int64) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			junk := make([]byte, 100)
			for i := range junk {
				junk[i] = byte(rand.Uint32())
			}
			_, err = f.Write(junk)
			return err
		},
		"cut off": func(path string, size int64) error { return os.Truncate(path, size-20) },
	} {
		t.Run(name, func(t *testing.T) {
			directory, up := quick(t), newUpstream()
			q := open(t, Config{Directory: directory})
			var ids []string
			for n := range 5 {
				ids = append(ids, put(t, q, Item{Rule: "r", Target: fmt.Sprint("/", n)}))
			}
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			blocks, _ := filepath.Glob(filepath.Join(directory, ownName, "jetstream", "*", "streams", "sluice-items", "msgs", "*.blk"))
			if len(blocks) != 1 {
				t.Fatalf("there are %d blocks", len(blocks))
			}
			info, err := os.Stat(blocks[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := tear(blocks[0], info.Size()); err != nil {
				t.Fatal(err)
			}
			if name == "cut off" {
				ids = ids[:4] // the last was never whole
			}
			q, _ = run(t, Config{Directory: directory}, up.deliver)
			for _, id := range ids {
				eventually(t, "delivered", isState(t, q, id, Done))
			}
			put(t, q, Item{Rule: "r"})
		})
	}
}

// However long a rule says that there is no room, it is asked again soon: an operator may have made some.
func TestNextLimitCheck(t *testing.T) {
	for _, after := range []time.Duration{-1, 0, time.Millisecond, time.Second, time.Hour, 34 * time.Hour} {
		least := min(max(after, 10*time.Millisecond), maxLimitRecheck)
		if got := nextLimitCheck(after); got < least || got > least+time.Second/4 {
			t.Errorf("after %v it is asked after %v", after, got)
		}
	}
}
