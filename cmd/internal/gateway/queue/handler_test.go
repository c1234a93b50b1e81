package queue

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHandler(t *testing.T) {
	t.Parallel()
	up := newUpstream()
	up.answer("/binary", func(*Item) Outcome { return Outcome{Status: 201, Body: []byte{0xff}} })
	inside, leave := make(chan struct{}), make(chan struct{})
	up.answer("/long", func(*Item) Outcome {
		close(inside)
		<-leave
		return Outcome{Status: 200}
	})
	q, stop := run(t, Config{}, up.deliver)
	ask := func(method, path string) (int, map[string]any, http.Header) {
		w := httptest.NewRecorder()
		q.Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
		var got map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Errorf("%s %s: %v in %s", method, path, err, w.Body)
		}
		return w.Code, got, w.Header()
	}
	id := put(t, q, Item{Rule: "r", Key: "hidden", Target: "/x", Body: []byte("hello")})
	binary, long := put(t, q, Item{Target: "/binary"}), put(t, q, Item{Target: "/long"})
	eventually(t, "done", isState(t, q, id, Done))
	eventually(t, "done", isState(t, q, binary, Done))
	<-inside
	status, got, header := ask("GET", StatusPath(id))
	result, _ := got["result"].(map[string]any)
	if status != 200 || got["state"] != "done" || result["body"] != "hello" || result["status"] != 200.0 || header.Get("Cache-Control") != "no-store" || got["key"] != nil {
		t.Errorf("%d %v", status, got)
	}
	if _, got, _ := ask("GET", StatusPath(binary)); got["result"].(map[string]any)["body_base64"] != "/w==" {
		t.Errorf("%v", got)
	}
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", StatusPath(newID()), 404},
		{"GET", StatusPrefix, 404},
		{"GET", StatusPrefix + "../" + id, 404},
		{"GET", StatusPath(id) + "/x", 404},
		{"DELETE", StatusPath(id), 409},
		{"DELETE", StatusPath(long), 409},
		{"DELETE", StatusPath(newID()), 404},
		{"POST", StatusPath(id), 405},
	} {
		if status, got, header := ask(c.method, c.path); status != c.status || got["detail"] == "" || header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %d %v, want %d", c.method, c.path, status, got, c.status)
		}
	}
	if status, got, header := ask("GET", StatusPath(long)); status != 200 || got["state"] != "delivering" || header.Get("Retry-After") != "1" {
		t.Errorf("%d %v", status, got)
	}
	close(leave)
	stop()
	if status, _, header := ask("GET", StatusPath(id)); status != 503 || header.Get("Retry-After") == "" {
		t.Errorf("after Close: %d", status)
	}
}
