package envoyratelimit

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// memcachedChange is the change of one count by a request: all its takes of the key, in their order. Counts that only
// increase use incr. A refund uses compare-and-swap, because decr pads a shorter number with spaces, and the reference reads
// "9 " as 0. A swap that conflicts with another instance is retried until the context is done. The swap sets the expiry
// again; the key contains the start of the window, so the count is not valid for longer.
type memcachedChange struct {
	key    string
	expiry int64
	costs  []int64 // negative: refund

	step memcachedStep
	// Fields of a refund: flags and CAS unique value from gets, and the count.
	flags, unique string
	count         int64 // before the first cost; next advances it
}

// memcachedStep is the next command of a change.
type memcachedStep uint8

const (
	stepStart memcachedStep = iota // incr, or gets if there is a refund
	stepAdd                        // the key does not exist
	stepSwap                       // cas
	stepDone
)

// next returns the count after the next of the costs. A refund does not go below 0.
func (c *memcachedChange) next() int64 {
	c.count, c.costs = counted(c.count, c.costs[0]), c.costs[1:]
	return c.count
}

func counted(n, cost int64) int64 {
	if cost < 0 {
		return max(0, n+cost)
	}
	return n + cost
}

// after returns the count after all costs.
func (c *memcachedChange) after() int64 {
	n := c.count
	for _, cost := range c.costs {
		n = counted(n, cost)
	}
	return n
}

func (c *memcachedChange) refunds() bool {
	return slices.ContainsFunc(c.costs, func(cost int64) bool { return cost < 0 })
}

// onlyRefunds reports whether all costs are refunds. Such a change does nothing if there is no count.
func (c *memcachedChange) onlyRefunds() bool {
	return !slices.ContainsFunc(c.costs, func(cost int64) bool { return cost >= 0 })
}

// appendCommand appends the command of the next step.
func (c *memcachedChange) appendCommand(b []byte) []byte {
	switch value := strconv.FormatInt(c.after(), 10); {
	case c.step == stepAdd:
		return fmt.Appendf(b, "add %s 0 %d %d\r\n%s\r\n", c.key, c.expiry, len(value), value)
	case c.step == stepSwap:
		return fmt.Appendf(b, "cas %s %s %d %d %s\r\n%s\r\n", c.key, c.flags, c.expiry, len(value), c.unique, value)
	case c.refunds():
		return fmt.Appendf(b, "gets %s\r\n", c.key)
	default:
		return fmt.Appendf(b, "incr %s %s\r\n", c.key, value) // the count is 0, because it is unknown
	}
}

// accept parses the reply to the command of the step and sets the next step.
func (c *memcachedChange) accept(reply string) error {
	switch {
	case c.step != stepStart && reply == "STORED":
		c.step = stepDone
	case c.step == stepAdd && reply == "NOT_STORED", c.step == stepSwap && (reply == "EXISTS" || reply == "NOT_FOUND"):
		c.step, c.count = stepStart, 0 // another instance changed the count
	case c.step != stepStart:
		return fmt.Errorf("unexpected reply to a change of the count: %q", reply)
	case c.refunds():
		return c.acceptValue(reply)
	case reply == "NOT_FOUND":
		c.step = stepAdd
	default:
		n, err := parseCount(reply)
		if err != nil {
			return err
		}
		c.step, c.count = stepDone, n-c.after()
	}
	return nil
}

// acceptValue parses the reply to gets.
func (c *memcachedChange) acceptValue(reply string) error {
	if reply == "END" {
		if c.step = stepAdd; c.onlyRefunds() {
			c.step = stepDone
		}
		return nil
	}
	head, value, _ := strings.Cut(reply, "\n")
	fields := strings.Fields(head)                      // VALUE key flags bytes unique
	n, err := parseCount(strings.TrimRight(value, " ")) // refunds of the reference may have padded it
	if err != nil || len(fields) != 5 {
		return fmt.Errorf("unexpected reply to gets: %q", reply)
	}
	c.step, c.count, c.flags, c.unique = stepSwap, n, fields[2], fields[4]
	return nil
}

func parseCount(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("unexpected reply: %q is not a count", text)
	}
	return int64(n), nil
}

// apply makes changes of different keys. Their commands are pipelined, then the next commands of the unfinished changes.
func (s *memcachedServer) apply(ctx context.Context, changes []*memcachedChange) error {
	for len(changes) > 0 {
		for batch := range slices.Chunk(changes, maxMemcachedBatch) {
			if err := s.exchange(ctx, batch); err != nil {
				return err
			}
		}
		changes = slices.DeleteFunc(changes, func(c *memcachedChange) bool { return c.step == stepDone })
	}
	return nil
}

// ping sends the command version.
func (s *memcachedServer) ping(ctx context.Context) error {
	return s.with(ctx, func(c *memcachedConn) error {
		if _, err := c.Write([]byte("version\r\n")); err != nil {
			return err
		}
		reply, err := c.reply()
		if err == nil && !strings.HasPrefix(reply, "VERSION ") {
			err = fmt.Errorf("unexpected reply to version: %q", reply)
		}
		return err
	})
}

// exchange sends the next commands of the changes and reads the replies in order. After an unexpected reply the connection is
// closed, because the next replies may belong to other commands. It returns the first error.
func (s *memcachedServer) exchange(ctx context.Context, changes []*memcachedChange) error {
	return s.with(ctx, func(conn *memcachedConn) error {
		var commands []byte
		for _, c := range changes {
			commands = c.appendCommand(commands)
		}
		if _, err := conn.Write(commands); err != nil {
			return err
		}
		for _, c := range changes {
			reply, err := conn.reply()
			if err == nil {
				err = c.accept(reply)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
