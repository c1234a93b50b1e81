package queue

import (
	"context"
	"testing"
	"time"
)

// TestMoves: the state of an item by the stage and the ending of its delivery.
func TestMoves(t *testing.T) {
	done, none, wait := Outcome{Status: 200}, Outcome{}, later(time.Hour)
	cancel := func(t *testing.T, q *Queue, id string) {
		if _, err := q.Cancel(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	for name, tt := range map[string]struct {
		before   func(*testing.T, *Queue, string) // the worker begins
		begins   bool
		out      Outcome
		want     State
		attempts int
	}{
		"offered, answered":   {nil, false, done, Done, 1},
		"offered, unanswered": {nil, false, none, Queued, 0},
		"offered, postponed":  {nil, false, wait, Queued, 0},
		"started, answered":   {nil, true, done, Done, 1},
		"started, unanswered": {nil, true, none, Queued, 1},
		"started, postponed":  {nil, true, wait, Queued, 1},
		"lost, answered":      {cancel, true, done, Cancelled, 0},
		"lost, unanswered":    {cancel, true, none, Cancelled, 0},
		"lost, postponed":     {cancel, true, wait, Cancelled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, _ := run(t, Config{Delivers: true, MinBackoff: time.Hour}, nil)
			id := put(t, q, Item{Rule: "r"})
			ctx, stop := context.WithTimeout(t.Context(), patience)
			defer stop()
			d, err := q.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if tt.before != nil {
				tt.before(t, q, id)
			}
			if tt.begins {
				if err := d.Begin(); (err != nil) != (tt.before != nil) {
					t.Errorf("Begin: %v", err)
				}
			}
			if tt.out.Err != nil {
				d.Later(time.Hour)
			} else {
				d.Done(tt.out)
			}
			st, err := q.Get(ctx, id)
			if err != nil || st.State != tt.want || st.Attempts != tt.attempts {
				t.Errorf("%+v, %v; want %v after %d attempts", st, err, tt.want, tt.attempts)
			}
		})
	}
}

// Limits are checked again soon, however long the rule denies: an operator may have reset the bucket.
func TestNextLimitCheck(t *testing.T) {
	for _, after := range []time.Duration{-1, 0, time.Millisecond, time.Second, time.Hour, 34 * time.Hour} {
		least := min(max(after, 10*time.Millisecond), maxLimitRecheck)
		if got := nextLimitCheck(after); got < least || got > least+time.Second/4 {
			t.Errorf("for %v the next check is after %v", after, got)
		}
	}
}
