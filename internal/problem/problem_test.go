package problem

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// FuzzProblem: for any names of rules and paths, the body is the output of encoding/json.
func FuzzProblem(f *testing.F) {
	f.Add("quota", "Too Many Requests", 429, "Rate limit a exceeded.", "/v1/items", "a", "b", int64(1))
	f.Add(`"`, "\\", 0, "<&>", "\x00\x1f\x7f", "é\u2028\u2029", "\xff\xfe", int64(-1))
	f.Add("", "", -5, "", "", "", "~ ", int64(0))
	f.Fuzz(func(t *testing.T, kind, title string, status int, detail, instance, one, two string, after int64) {
		for _, violated := range [][]string{nil, {one}, {one, two}} {
			want, err := json.Marshal(struct {
				Type         string   `json:"type"`
				Title        string   `json:"title"`
				Status       int      `json:"status"`
				Detail       string   `json:"detail,omitempty"`
				Instance     string   `json:"instance,omitempty"`
				Violated     []string `json:"violated-policies,omitempty"`
				RetryAfterMS int64    `json:"retry_after_ms,omitempty"`
			}{kind, title, status, detail, instance, violated, after})
			if err != nil {
				t.Fatal(err)
			}
			p := Problem{Type: kind, Title: title, Status: status, Detail: detail, Instance: instance, Violated: violated, RetryAfterMS: after}
			if got := p.AppendJSON(nil); string(got) != string(want) {
				t.Errorf("wrote %s, want %s", got, want)
			}
		}
	})
}

// Write reuses its buffer: a response must not contain the body of another one.
func TestProblemBuffers(t *testing.T) {
	first, second := httptest.NewRecorder(), httptest.NewRecorder()
	(&Problem{Title: "first", Status: http.StatusTooManyRequests}).Write(first)
	(&Problem{Title: "second", Status: http.StatusServiceUnavailable}).Write(second)
	if a, b := first.Body.String(), second.Body.String(); a != `{"type":"","title":"first","status":429}`+"\n" || b != `{"type":"","title":"second","status":503}`+"\n" {
		t.Errorf("wrote %q and %q", a, b)
	}
}
