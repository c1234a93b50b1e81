package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// keptRequests returns a queue directory with a dead letter, a delivered item and two queued items, and their ids.
func keptRequests(t *testing.T, key []byte) (directory string, ids map[string]string) {
	t.Helper()
	directory, ids = filepath.Join(t.TempDir(), "queue"), map[string]string{}
	q, err := queue.Open(queue.Config{
		Directory: directory, EncryptionKey: key, MinBackoff: time.Millisecond, Delivers: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		_ = q.Run(ctx)
		close(ended)
	}()
	go deliverAsNamed(ctx, q)
	for _, name := range []string{"dead", "done", "wait", "other"} {
		target := strings.Replace("/"+name, "other", "wait", 1)
		if ids[name], err = q.Put(t.Context(), queue.Item{Rule: "posts-per-user", Target: target, Attempts: 2}); err != nil {
			t.Fatal(err)
		}
	}
	for settled := false; !settled; {
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("timeout: the items do not reach their states")
		}
		c := q.Counts(t.Context())
		settled = c.Dead == 1 && c.Ended == 1
	}
	stop()
	<-ended
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	return directory, ids
}

// deliverAsNamed finishes each delivery with the outcome that its target names.
func deliverAsNamed(ctx context.Context, q *queue.Queue) {
	for {
		d, err := q.Next(ctx)
		if err != nil {
			return
		}
		switch target := d.Item().Target; {
		case target == "/wait":
			d.Later(time.Second)
		case d.Begin() != nil:
			d.Done(queue.Outcome{})
		case target == "/dead":
			d.Done(queue.Outcome{Status: http.StatusBadGateway, Body: []byte("no")})
		default:
			d.Done(queue.Outcome{Status: http.StatusCreated, Header: http.Header{"X-Made": {"yes"}}, Body: []byte("made")})
		}
	}
}

func TestServeQueue(t *testing.T) {
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(strings.Repeat("ab", queue.KeySize)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	directory, ids := keptRequests(t, bytes.Repeat([]byte{0xab}, queue.KeySize))
	p := startServe(t, fmt.Sprintf("metrics: {http_listener: true}\nqueue: {directory: %q, encryption_key_file: %q}", directory, keyFile))
	p.asked(t)
	for _, test := range []struct {
		args string
		code int
		want string // regular expression
	}{
		{"queue list", 0, `2 queued, 0 delivering, 1 dead, 1 done or cancelled; \d+ B, oldest item .* old(?s:.*)dead +\d{4}-.* 2 +posts-per-user.* response 502 Bad Gateway\n(?s:.*)queued`},
		{"queue list -n 1", 0, `more items: --page-token 1\n`},
		{"queue list --page-token 1 --state queued -o json", 0, `"items": \[\n    \{\n      "id": "` + ids["wait"] + `",\n      "state": "queued"`},
		{"queue list --state done", 0, ids["done"] + ` +done`},
		{"queue list --state x", 2, `state: "x": write queued, delivering, dead, done or cancelled`},
		{"queue dead", 0, ids["dead"] + ` +dead`},
		{"queue status " + ids["dead"], 0, `error        response 502 Bad Gateway\nresponse     502 Bad Gateway, 2 B\n`},
		{"queue status " + ids["done"] + " -o json", 0, `"headers": \{\n +"X-Made": \[\n +"yes"\n +\]\n +\},\n +"body": "made"`},
		{"queue status " + ids["other"], 0, `state        queued\n(?s:.*)position     2\n`},
		{"queue status x", 2, `no such queue item, or its result has expired: sluice queue list lists the items\n$`},
		{"queue cancel x", 2, `no such queue item, or its result has expired: sluice queue list lists the items\n$`},
		{"queue cancel " + ids["other"], 0, `state        cancelled\n`},
		{"queue cancel " + ids["done"], 2, `the item is done: only queued items and dead letters can be cancelled`},
		{"queue requeue " + ids["wait"], 2, `the item is queued: only dead letters can be requeued`},
		{"queue requeue --all", 0, `^1 request queued again\n`},
		{"queue requeue --all -o json", 0, `"requeued": \[\]`},
		{"queue list", 0, `2 queued, 0 delivering, 0 dead, 2 done or cancelled;`},
	} {
		code, out, stderr := sluiceRun(t, words(t, test.args)...)
		for late := time.Now().Add(hangs); test.args == "queue list" && !regexp.MustCompile(test.want).MatchString(out) && time.Now().Before(late); {
			code, out, stderr = sluiceRun(t, words(t, test.args)...) // the list may lag behind changes
		}
		if code != test.code || !regexp.MustCompile(test.want).MatchString(out+stderr) {
			t.Errorf("sluice %s: exit %d, want %d and %s in\n%s%s", test.args, code, test.code, test.want, out, stderr)
		}
	}
	text := p.metrics(t)
	for _, want := range []string{
		"sluice_queue_up 1\n", `sluice_queue_items{state="queued"} 2` + "\n", "sluice_queue_bytes ", "sluice_queue_oldest_item_age_seconds ",
		`sluice_queue_events_total{event="cancelled"} 1` + "\n", `sluice_queue_events_total{event="requeued"} 1` + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %q", want)
		}
	}
}

// A wrong or missing encryption key is an error at the start.
func TestServeQueueKey(t *testing.T) {
	directory, _ := keptRequests(t, []byte(strings.Repeat("k", queue.KeySize)))
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	for section, want := range map[string]string{
		fmt.Sprintf("queue: {directory: %q}", directory):                                 "sluice-items is encrypted: set the file with the key",
		fmt.Sprintf("queue: {directory: %q, encryption_key_file: %q}", directory, short): "must hold 64 hexadecimal digits",
		fmt.Sprintf("queue: {directory: %q, encryption_key_file: /no}", directory):       "queue.encryption_key_file: /no: there is no such file",
	} {
		file := filepath.Join(t.TempDir(), "sluice.yaml")
		if err := os.WriteFile(file, []byte(section), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out, stderr := sluiceRun(t, "serve", "--config", file); code != term.ExitWrong || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, want %q in\n%s%s", section, code, want, out, stderr)
		}
	}
}
