package redistest

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Owner is the primary that has the slot now, or nil.
func (c *Cluster) Owner(slot int) *Server {
	for _, s := range c.Primaries() {
		nodes, err := s.Do("CLUSTER", "NODES")
		if err != nil {
			continue
		}
		for line := range strings.Lines(nodes) {
			words := strings.Fields(line)
			if len(words) > 8 && strings.Contains(words[2], "myself") && hasSlot(words[8:], slot) {
				return s
			}
		}
	}
	return nil
}

// hasSlot tells whether ranges like 0-5460 hold the slot. Those in brackets are on their way.
func hasSlot(ranges []string, slot int) bool {
	for _, r := range ranges {
		from, to, ok := strings.Cut(r, "-")
		if !ok {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 == nil && err2 == nil && first <= slot && slot <= last {
			return true
		}
	}
	return false
}

// Move moves a slot with all its keys to another primary, as an operator's tool does: the keys one by one, while both
// servers answer for those they have. It begins when all nodes have heard of the last move: a new owner that does not
// know of the newest epoch claims the slot with an old one, and the others send it away from there for ever.
func (c *Cluster) Move(slot int, to *Server) error {
	if err := c.settle(); err != nil {
		return err
	}
	from := c.Owner(slot)
	if from == nil || from == to {
		return fmt.Errorf("redistest: slot %d cannot be moved there", slot)
	}
	text := strconv.Itoa(slot)
	source, err := from.Do("CLUSTER", "MYID")
	if err != nil {
		return err
	}
	target, err := to.Do("CLUSTER", "MYID")
	if err != nil {
		return err
	}
	if _, err := to.Do("CLUSTER", "SETSLOT", text, "IMPORTING", source); err != nil {
		return err
	}
	if _, err := from.Do("CLUSTER", "SETSLOT", text, "MIGRATING", target); err != nil {
		return err
	}
	if err := moveKeys(from, to, text); err != nil {
		return err
	}
	for _, s := range []*Server{to, from} { // the new owner first: nobody must be sent to one that does not know of it
		if _, err := s.Do("CLUSTER", "SETSLOT", text, "NODE", target); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until all nodes name the same owners with the same epochs.
func (c *Cluster) settle() error {
	deadline, tick := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for {
		views := map[string]bool{}
		for _, s := range c.Servers {
			nodes, err := s.Do("CLUSTER", "NODES")
			if err != nil {
				return err
			}
			views[owners(nodes)] = true
		}
		if len(views) == 1 {
			return nil
		}
		select {
		case <-deadline:
			return fmt.Errorf("redistest: the nodes do not agree who has which slots:\n%s",
				strings.Join(slices.Sorted(maps.Keys(views)), "\n"))
		case <-tick.C:
		}
	}
}

// owners is what CLUSTER NODES says of primaries: a line each of name, epoch and slots.
func owners(nodes string) string {
	var lines []string
	for line := range strings.Lines(nodes) {
		if words := strings.Fields(line); len(words) > 7 && strings.Contains(words[2], "master") {
			lines = append(lines, words[0]+" "+words[6]+" "+strings.Join(words[8:], " "))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func moveKeys(from, to *Server, slot string) error {
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		return err
	}
	for {
		keys, err := from.Do("CLUSTER", "GETKEYSINSLOT", slot, "10")
		if err != nil || keys == "" {
			return err
		}
		for key := range strings.SplitSeq(keys, "\n") {
			// A key may have expired, or come back, in between: it is looked for again until there is none.
			if _, err := from.Do("MIGRATE", host, port, key, "0", "5000"); err != nil {
				return err
			}
		}
	}
}

// Slots are those that have keys, by the server that has them.
func (c *Cluster) Slots() (map[int]*Server, error) {
	slots := map[int]*Server{}
	for _, s := range c.Primaries() {
		keys, err := s.Do("KEYS", "*")
		if err != nil {
			return nil, err
		}
		for key := range strings.FieldsSeq(keys) {
			text, err := s.Do("CLUSTER", "KEYSLOT", key)
			if err != nil {
				return nil, err
			}
			slot, err := strconv.Atoi(text)
			if err != nil {
				return nil, err
			}
			slots[slot] = s
		}
	}
	return slots, nil
}
