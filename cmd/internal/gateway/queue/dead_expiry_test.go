package queue

import (
	"testing"
	"time"
)

// A dead letter expires when it is deleted, the dead letter TTL after its last change, and not at the deadline for its delivery.
// Without a TTL it never expires.
func TestDeadLetterExpiry(t *testing.T) {
	for _, ttl := range []time.Duration{time.Hour, 0} {
		up := newUpstream()
		q, _ := run(t, Config{DeadLetterTTL: ttl}, up.deliver)
		up.answer("/", always(500))
		id := put(t, q, Item{Rule: "r", Key: "k", Target: "/", Attempts: 1, Expires: time.Now().Add(30 * time.Minute)})
		eventually(t, "dead", isState(t, q, id, Dead))
		got, err := q.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		list, _, err := q.List(t.Context(), Dead, "", 10)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		for _, st := range []*Status{got, list[0]} {
			want := time.Time{}
			if ttl > 0 {
				want = st.Changed.Add(ttl)
			}
			if !st.Expires.Equal(want) {
				t.Errorf("TTL %v: changed %v, expires %v, want %v", ttl, st.Changed, st.Expires, want)
			}
		}
		again, err := q.Requeue(t.Context(), id)
		if err != nil || again.Expires.Before(time.Now().Add(29*time.Minute)) || again.Expires.After(time.Now().Add(31*time.Minute)) {
			t.Errorf("requeued: %+v, %v", again, err)
		}
	}
}
