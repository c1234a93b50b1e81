package adminclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"
)

// Watch returns the events of GET /v1/watch until ctx is done or the loop ends. The first event is sent at once and has no
// decisions: its time is the start of the first interval. An error ends the iteration.
func (c *Client) Watch(ctx context.Context, interval time.Duration) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		path := "/v1/watch?interval=" + interval.String()
		resp, err := c.admin.send(ctx, http.MethodGet, path, nil)
		if err != nil {
			yield(nil, err)
			return
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			raw, err := c.admin.read(resp)
			if err == nil {
				err = c.admin.identify(ctx, "admin", c.admin.problem(resp, path, raw))
			}
			yield(nil, err)
			return
		}
		if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
			yield(nil, c.admin.foreign(resp, path))
			return
		}
		for data, err := range events(resp.Body) {
			if err != nil {
				yield(nil, &UnreachableError{URL: c.admin.shown, Err: err})
				return
			}
			if !yield(data, nil) {
				return
			}
		}
	}
}

// errStreamEnded is the error after the last event, when the service stops.
var errStreamEnded = errors.New("the service ended the stream")

// events reads a stream of events: lines that begin with "data:", and an empty line after each event.
func events(r io.Reader) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxResponse)
		var data []byte
		for lines.Scan() {
			line := lines.Text()
			if text, ok := strings.CutPrefix(line, "data:"); ok {
				data = append(data, strings.TrimPrefix(text, " ")...)
				continue
			}
			if line != "" || data == nil {
				continue // a comment, which keeps the connection alive, or an unused field
			}
			if !json.Valid(data) {
				yield(nil, errors.New("the service sent an event that is not JSON"))
				return
			}
			if !yield(data, nil) {
				return
			}
			data = nil
		}
		err := lines.Err()
		if err == nil {
			err = errStreamEnded
		}
		yield(nil, err)
	}
}
