package adminapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminapi"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/memstore"
)

// kept configures a fake queue. The tests of cmd/sluice use the real one.
func kept(t *testing.T) func(*adminapi.Config) {
	t.Helper()
	now := time.Now()
	items := map[string]*adminmsg.QueueItem{
		"a": {ID: "a", State: "queued", Rule: "user", Position: 1, Accepted: now, Expires: &now},
		"b": {ID: "b", State: "dead", Rule: "gone", RawKey: "\xff", Attempts: 3, Accepted: now, Changed: &now, Error: "no", Result: &adminmsg.QueueResult{Status: 500, Body: "x"}},
		"c": {ID: "c", State: "done", Result: &adminmsg.QueueResult{
			Status: 200, Header: http.Header{"Content-Type": {"image/png"}}, BodyBase64: []byte{0xff}, Truncated: true,
		}},
	}
	find := func(id string) (*adminmsg.QueueItem, error) {
		switch it := items[id]; {
		case id == "down":
			return nil, adminapi.ErrQueueDown
		case it == nil:
			return nil, adminapi.ErrNoItem
		default:
			return it, nil
		}
	}
	change := func(from, to string) func(context.Context, string) (adminmsg.QueueItem, error) {
		return func(_ context.Context, id string) (adminmsg.QueueItem, error) {
			it, err := find(id)
			if err != nil {
				return adminmsg.QueueItem{}, err
			}
			if it.State != from {
				return adminmsg.QueueItem{}, fmt.Errorf("%w: %s", adminapi.ErrItemState, it.State)
			}
			it.State = to
			return *it, nil
		}
	}
	return func(c *adminapi.Config) {
		c.Queue = &adminapi.Queue{
			Counts: func(context.Context) adminmsg.QueueCounts { return adminmsg.QueueCounts{Queued: 1, Dead: 1, Up: true} },
			List: func(_ context.Context, state, _ string, n int) (all []adminmsg.QueueItem, next string, err error) {
				for _, id := range []string{"a", "b"} {
					if state == "" || items[id].State == state {
						all = append(all, *items[id])
					}
				}
				if len(all) > n {
					return all[:n], "7", nil
				}
				return all, "", nil
			},
			Get: func(_ context.Context, id string) (adminmsg.QueueItem, error) {
				it, err := find(id)
				if err != nil {
					return adminmsg.QueueItem{}, err
				}
				return *it, nil
			},
			Cancel: change("queued", "cancelled"), Requeue: change("dead", "queued"),
		}
	}
}

func TestQueue(t *testing.T) {
	o := newOffice(t, memstore.New(), kept(t))
	page := o.get(200, "/v1/queue")
	if items := page["items"].([]any); len(items) != 2 || page["next_page_token"] != "" || page["counts"].(map[string]any)["dead"] != 1.0 {
		t.Errorf("%v", page)
	}
	if page := o.get(200, "/v1/queue?limit=1"); page["next_page_token"] != "7" {
		t.Errorf("%v", page)
	}
	if items := o.get(200, "/v1/queue?state=dead&page_token=3")["items"].([]any); len(items) != 1 || items[0].(map[string]any)["id"] != "b" {
		t.Errorf("%v", items)
	}
	for _, path := range []string{"/v1/queue?limit=0", "/v1/queue?limit=x", "/v1/queue?state=x", "/v1/queue?page_token=x", "/v1/queue/item"} {
		o.get(400, path)
	}
	if it := o.get(200, "/v1/queue/item?id=b"); it["error"] != "no" || it["result"].(map[string]any)["status"] != 500.0 {
		t.Errorf("%v", it)
	}
	o.get(404, "/v1/queue/item?id=x")
	o.get(503, "/v1/queue/item?id=down")
	o.log.lines()
	for _, c := range []struct {
		status          int
		path, id, state string
	}{
		{409, "requeue", "a", ""},
		{409, "cancel", "b", ""},
		{404, "cancel", "x", ""},
		{503, "requeue", "down", ""},
		{400, "cancel", "", ""},
		{200, "cancel", "a", "cancelled"},
		{200, "requeue", "b", "queued"},
	} {
		got := o.post(c.status, "/v1/queue/"+c.path, fmt.Sprintf(`{"id":%q}`, c.id))
		if c.status == 200 && got["state"] != c.state {
			t.Errorf("%s %s: %v", c.path, c.id, got)
		}
		if lines := o.log.lines(); len(lines) != 1 || !strings.Contains(lines[0], `action="queue `+c.path+`"`) {
			t.Errorf("the log has %q", lines)
		}
	}
	none := newOffice(t, memstore.New())
	none.get(501, "/v1/queue")
	none.post(501, "/v1/queue/cancel", `{"id":"x"}`)
}
