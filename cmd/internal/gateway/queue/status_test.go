package queue

import (
	"testing"
	"time"
)

// After a write every gateway returns the new state or a later one, although indexes may lag behind the streams: a state that was
// returned to a client or an operator is never followed by an earlier one.
func TestStatusFollowsWrites(t *testing.T) {
	t.Parallel()
	url, up := natsServer(t).ClientURL(), newUpstream()
	up.answer("/dead", always(503))
	q, stop := run(t, Config{URL: url}, up.deliver)
	other, _ := run(t, Config{URL: url}, nil)
	var dead, done []string
	for range 20 {
		dead = append(dead, put(t, q, Item{Rule: "dead", Key: "k", Target: "/dead", Attempts: 1}))
		done = append(done, put(t, q, Item{Rule: "done", Key: "k", Target: "/x"}))
	}
	for _, id := range done { // as soon as one gateway returns it, the other does
		eventually(t, "done", isState(t, q, id, Done))
		shows(t, other, id, Done)
	}
	for _, id := range dead {
		eventually(t, "dead", isState(t, q, id, Dead))
		shows(t, other, id, Dead)
	}
	stop()
	again, _ := run(t, Config{URL: url}, nil)
	for _, id := range dead {
		st, err := again.Requeue(t.Context(), id)
		if err != nil || st.State != Queued || st.Attempts != 0 || st.Rule != "dead" || st.Expires.Before(time.Now()) {
			t.Fatalf("Requeue: %+v, %v", st, err)
		}
		shows(t, again, id, Queued)
		shows(t, other, id, Queued)
		for range 2 {
			if st, err = again.Cancel(t.Context(), id); err != nil || st.State != Cancelled || st.Rule != "dead" {
				t.Fatalf("Cancel: %+v, %v", st, err)
			}
		}
		shows(t, again, id, Cancelled)
		shows(t, other, id, Cancelled)
	}
	for range 20 {
		id := put(t, again, Item{Rule: "new", Key: "k", Target: "/x", Expires: time.Now().Add(time.Hour)})
		shows(t, again, id, Queued)
		shows(t, other, id, Queued)
	}
}

// shows fails the test if the state of an item is not want.
func shows(t *testing.T, q *Queue, id string, want State) {
	t.Helper()
	st, err := q.Get(t.Context(), id)
	if err != nil {
		t.Errorf("Get: %v, want %v", err, want)
		return
	}
	if st.State != want || st.Rule == "" || st.Accepted.IsZero() || want == Queued && (st.Attempts != 0 || st.Error != "") {
		t.Errorf("Get: %+v, want %v", st, want)
	}
}
