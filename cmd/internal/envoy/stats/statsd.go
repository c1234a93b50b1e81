package stats

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sink sends statistics to statsd or DogStatsD.
type Sink struct {
	Addr  string
	Dog   bool // DogStatsD over UDP with tags; otherwise statsd over TCP, with tags in the names
	Tags  map[string]string
	Every time.Duration
	// Rewrite extracts tags from names, for DogStatsD. The first match applies.
	Rewrite []Rewrite
	// Failed is called with an error when sending begins to fail, and with nil when it succeeds again.
	Failed func(error)

	stats *Stats
	last  map[string]uint64 // sent values
	conn  net.Conn
	bad   bool
}

// Rewrite replaces names that match Pattern by Name and adds Tags. In both, $1 is the first group of the match.
type Rewrite struct {
	Pattern *regexp.Regexp
	Name    string
	Tags    map[string]string
}

// statsdTimeout is the timeout of a flush, so that a hanging sink does not delay the next flush for long.
const statsdTimeout = 5 * time.Second

// Run sends the statistics periodically until ctx is done, and then once more.
func (k *Sink) Run(ctx context.Context, s *Stats) {
	k.stats, k.last = s, make(map[string]uint64)
	tick := time.NewTicker(k.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			k.flush()
			if k.conn != nil {
				k.conn.Close()
			}
			return
		case <-tick.C:
			k.flush()
		}
	}
}

// flush sends changes. After a failure they are sent with the next flush, except times, which are dropped.
func (k *Sink) flush() {
	var lines []string
	sent := make(map[string]uint64)
	k.stats.Each(func(name string, value uint64) {
		if before := k.last[name]; value > before {
			lines = append(lines, k.line(name, strconv.FormatUint(value-before, 10)+"|c"))
			sent[name] = value
		}
	})
	k.stats.EachGauge(func(name string, value uint64) {
		lines = append(lines, k.line(name, strconv.FormatUint(value, 10)+"|g"))
	})
	for name, m := range k.stats.methods() {
		lines = append(lines, k.times("ratelimit_server."+name+".response_time", &m.Responses)...)
	}
	if len(lines) == 0 {
		return
	}
	err := k.send(lines)
	if err == nil {
		maps.Copy(k.last, sent)
	}
	if bad := err != nil; bad != k.bad {
		k.bad = bad
		if k.Failed != nil {
			k.Failed(err)
		}
	}
}

// maxTimes is the maximum number of times of a method per flush. Beyond it, one line represents several equal times.
const maxTimes = 10_000

func (k *Sink) times(name string, t *Timer) (lines []string) {
	var (
		millis []int
		counts []uint32
		total  float64
	)
	t.drain(func(ms int, times uint32) {
		millis, counts = append(millis, ms), append(counts, times)
		total += float64(times)
	})
	for i, ms := range millis {
		value, n := strconv.Itoa(ms)+"|ms", counts[i]
		if total > maxTimes {
			n = max(1, uint32(float64(n)*maxTimes/total))
			value += "|@" + strconv.FormatFloat(float64(n)/float64(counts[i]), 'f', -1, 64)
		}
		line := k.line(name, value)
		for range n {
			lines = append(lines, line)
		}
	}
	return lines
}

// line returns the line of a statistic. Statsd has no tags, so they become part of the name.
func (k *Sink) line(name, value string) string {
	var tags []string
	for _, tag := range slices.Sorted(maps.Keys(k.Tags)) {
		if k.Dog {
			tags = append(tags, tag+":"+k.Tags[tag])
		} else {
			name += ".__" + tag + "=" + k.Tags[tag]
		}
	}
	if !k.Dog {
		return name + ":" + value + "\n"
	}
	for _, r := range k.Rewrite {
		if m := r.Pattern.FindStringSubmatch(name); m != nil {
			name = expand(r.Name, m)
			for _, tag := range slices.Sorted(maps.Keys(r.Tags)) {
				tags = append(tags, tag+":"+expand(r.Tags[tag], m))
			}
			break
		}
	}
	if len(tags) > 0 {
		value += "|#" + strings.Join(tags, ",")
	}
	return name + ":" + value + "\n"
}

var groupRef = regexp.MustCompile(`\$(\d+|\{\d+\})`)

// expand replaces $1, $2, … in text by the groups.
func expand(text string, groups []string) string {
	return groupRef.ReplaceAllStringFunc(text, func(ref string) string {
		n, err := strconv.Atoi(strings.Trim(ref[1:], "{}"))
		if err != nil || n >= len(groups) {
			return ""
		}
		return groups[n]
	})
}

// maxPacket is the maximum size of a UDP packet without fragmentation, in bytes.
const maxPacket = 1432

func (k *Sink) send(lines []string) error {
	if k.conn == nil {
		network := "tcp"
		if k.Dog {
			network = "udp"
		}
		conn, err := net.DialTimeout(network, k.Addr, statsdTimeout)
		if err != nil {
			return fmt.Errorf("statsd: %w", err)
		}
		k.conn = conn
	}
	if err := k.write(lines); err != nil {
		k.conn.Close()
		k.conn = nil
		return fmt.Errorf("statsd: %w", err)
	}
	return nil
}

func (k *Sink) write(lines []string) error {
	if err := k.conn.SetWriteDeadline(time.Now().Add(statsdTimeout)); err != nil {
		return err
	}
	most := 64 << 10
	if k.Dog {
		most = maxPacket
	}
	var b bytes.Buffer
	for _, line := range lines {
		if b.Len() > 0 && b.Len()+len(line) > most {
			if _, err := k.conn.Write(b.Bytes()); err != nil {
				return err
			}
			b.Reset()
		}
		b.WriteString(line)
	}
	_, err := k.conn.Write(b.Bytes())
	return err
}
