package resp

import (
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/bounds"
)

// throttleCall is a CL.THROTTLE call.
type throttleCall struct {
	takes   [1]sluice.Take
	answers [1]sluice.Decision
	limit   *limit
	err     error
	next    int // index in the batch of the next call for the same key; 0 means none
}

const usage = "CL.THROTTLE key max_burst count period [quantity]"

// throttle handles CL.THROTTLE: at once with the memory store, or as part of a batch with a remote store.
func (c *conn) throttle(args [][]byte) {
	if len(args) != 5 && len(args) != 6 {
		c.fail("ERR wrong number of arguments for 'cl.throttle' command: write " + usage)
		return
	}
	if len(args[1]) > maxKeyBytes {
		bounds.RESPKey.Reached()
		c.fail("ERR the key has " + strconv.Itoa(len(args[1])) + " bytes: the maximum is " + strconv.Itoa(maxKeyBytes))
		return
	}
	var n [4]int64
	n[3] = 1
	for i, arg := range args[2:] {
		var ok bool
		if n[i], ok = integer(arg); !ok {
			c.fail("ERR " + [...]string{"max_burst", "count", "period", "quantity"}[i] + " is not an integer or out of range: write " + usage)
			return
		}
	}
	limit, err := c.recent.get(&c.server.limits, numbers{n[0], n[1], n[2]})
	if err != nil {
		c.fail("ERR " + err.Error())
		return
	}
	if n[3] < 0 || n[3] > sluice.MaxCost {
		c.fail("ERR quantity " + strconv.FormatInt(n[3], 10) + " is not between 0 and " + strconv.FormatInt(sluice.MaxCost, 10))
		return
	}
	if c.server.remote {
		c.batch = append(c.batch, throttleCall{limit: limit})
		q := &c.batch[len(c.batch)-1]
		q.takes[0] = sluice.Take{Rule: c.server.rule, Limit: limit.built, Key: string(args[1]), Cost: n[3]}
		if len(c.batch) == maxBatch {
			c.finishBatch()
		}
		return
	}
	q := &c.one
	q.limit = limit
	t := &q.takes[0]
	t.Limit, t.Cost = limit.built, n[3]
	t.Key = unsafe.String(unsafe.SliceData(args[1]), len(args[1])) // not retained after the call
	c.decide(q)
	c.answer(q)
}

func (c *conn) decide(q *throttleCall) {
	_, q.err = c.server.limiter.Decide(c.server.ctx, q.takes[:], q.answers[:])
}

// maxBatch is the maximum number of commands that are decided concurrently.
const maxBatch = 64

// finishBatch decides the commands of the batch concurrently, because each would otherwise wait for the round trips of those
// before it. Commands for the same key are decided in order.
func (c *conn) finishBatch() {
	batch := c.batch
	if len(batch) == 0 {
		return
	}
	var all sync.WaitGroup
	for i := len(batch) - 1; i >= 0; i-- { // backwards, so that next is set before a call is decided
		before := i - 1
		for before >= 0 && batch[before].takes[0].Key != batch[i].takes[0].Key {
			before--
		}
		switch {
		case before >= 0:
			batch[before].next = i
		case i == 0:
			c.decideFrom(batch, 0)
		default:
			all.Go(func() { c.decideFrom(batch, i) })
		}
	}
	all.Wait()
	c.batch = batch[:0]
	for i := range batch {
		c.answer(&batch[i])
	}
	clear(batch) // free the keys
}

func (c *conn) decideFrom(batch []throttleCall, i int) {
	for {
		c.decide(&batch[i])
		if i = batch[i].next; i == 0 {
			return
		}
	}
}

// answer appends the reply of redis-cell.
func (c *conn) answer(q *throttleCall) {
	if q.err != nil {
		c.fail("ERR no decision: " + q.err.Error())
		return
	}
	d := &q.answers[0]
	limited, retry := !d.Allowed, d.RetryAfter
	if q.takes[0].Cost == 0 {
		// A quantity of 0 is denied only if the usage already exceeds the limit, which can happen after calls with a larger
		// limit, or if the key is blocked. The decision of the limiter is for a cost of 1.
		retry -= q.limit.unit
		limited = limited && retry > 0
	}
	code, after := byte('0'), int64(-1)
	if limited {
		code = '1'
		c.counts.Denied++
		if !d.ExceedsLimit {
			after = seconds(retry)
		}
	} else {
		c.counts.Allowed++
	}
	b := append(c.out, "*5\r\n:"...)
	b = append(b, code)
	b = appendNumber(b, q.limit.burst+1)
	b = appendNumber(b, d.Remaining)
	b = appendNumber(b, after)
	b = appendNumber(b, seconds(d.ResetAfter))
	c.out = append(b, "\r\n"...)
}

// appendNumber ends the current line and appends an integer.
func appendNumber(b []byte, n int64) []byte {
	return strconv.AppendInt(append(b, "\r\n:"...), n, 10)
}

// seconds truncates d to milliseconds and rounds up to seconds, as redis-cell does.
func seconds(d time.Duration) int64 { return (d.Milliseconds() + 999) / 1000 }
