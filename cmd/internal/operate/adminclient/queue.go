package adminclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
)

// MaxQueuePage is the maximum number of queue items per page.
const MaxQueuePage = 1000

// RequeueDead requeues all dead letters, page by page, and returns their IDs. An item that becomes dead again during the
// call is not requeued twice, because it is listed before the page token.
func (c *Client) RequeueDead(ctx context.Context) (ids []string, err error) {
	ids = []string{}
	for token := ""; ; {
		var page adminmsg.QueuePage
		if _, err := c.Get(ctx, fmt.Sprintf("/v1/queue?state=dead&limit=%d&page_token=%s", MaxQueuePage, token), &page); err != nil {
			return nil, err
		}
		for i := range page.Items {
			var it adminmsg.QueueItem
			_, err := c.Post(ctx, "/v1/queue/requeue", adminmsg.QueueID{ID: page.Items[i].ID}, &it)
			var problem *ProblemError
			switch {
			case err == nil:
				ids = append(ids, it.ID)
			case errors.As(err, &problem) && problem.Status == http.StatusConflict: // requeued by another client since it was listed
			default:
				return nil, err
			}
		}
		if token = page.NextPageToken; token == "" {
			return ids, nil
		}
	}
}
