package adminclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
)

// MaxQueuePage is how many requests that are kept the service lists at a time.
const MaxQueuePage = 1000

// ReplayDead has all requests tried again that failed for good, and returns their IDs: a page after the other. Those that
// are dead again meanwhile are behind where it goes on.
func (c *Client) ReplayDead(ctx context.Context) (ids []string, err error) {
	ids = []string{}
	for after := ""; ; {
		var page adminmsg.QueuePage
		if _, err := c.Get(ctx, fmt.Sprintf("/v1/queue?state=dead&n=%d&after=%s", MaxQueuePage, after), &page); err != nil {
			return nil, err
		}
		for i := range page.Items {
			var it adminmsg.QueueItem
			_, err := c.Post(ctx, "/v1/queue/replay", adminmsg.QueueID{ID: page.Items[i].ID}, &it)
			var problem *ProblemError
			switch {
			case err == nil:
				ids = append(ids, it.ID)
			case errors.As(err, &problem) && problem.Status == http.StatusConflict: // another has replayed it since
			default:
				return nil, err
			}
		}
		if after = page.Next; after == "" {
			return ids, nil
		}
	}
}
