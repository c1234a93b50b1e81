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

// Owner returns the primary that currently has the slot, or nil.
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

// hasSlot reports whether ranges such as 0-5460 contain the slot. Slots in brackets are being migrated.
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

// Move moves a slot with all its keys to another primary, like an operator's tool: key by key, while each server serves
// the keys it has. It starts when all nodes have received the last move. Otherwise a new owner without the newest epoch
// would claim the slot with an old one, and the others would redirect clients forever.
func (c *Cluster) Move(slot int, to *Server) error {
	if err := c.settle(); err != nil {
		return err
	}
	from := c.Owner(slot)
	if from == nil || from == to {
		return fmt.Errorf("redistest: slot %d cannot be moved to this server", slot)
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
	for _, s := range []*Server{to, from} { // the new owner first: clients must not be redirected to a server that does not have the slot yet
		if _, err := s.Do("CLUSTER", "SETSLOT", text, "NODE", target); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until all nodes report the same owners with the same epochs.
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
			return fmt.Errorf("redistest: the nodes do not agree on the owners of hash slots:\n%s",
				strings.Join(slices.Sorted(maps.Keys(views)), "\n"))
		case <-tick.C:
		}
	}
}

// owners returns the primaries of a reply of CLUSTER NODES: one line each of name, epoch and slots.
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
			// A key may have expired, or been created again, in between: the loop repeats until there is none.
			if _, err := from.Do("MIGRATE", host, port, key, "0", "5000"); err != nil {
				return err
			}
		}
	}
}

// Slots returns the slots that have keys, with the server of each.
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
