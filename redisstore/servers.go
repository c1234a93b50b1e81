package redisstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ShardServers returns the address of the server of each shard, as host:port, for operators. A shard of a Cluster whose
// hash slots are on several servers has all their addresses, separated by commas. An address is empty if the client
// does not provide it. In a Cluster it sends commands to the servers. Otherwise it does not block, and it returns the
// addresses of Config.URL if the store was never connected.
func (s *Store) ShardServers(ctx context.Context) ([]string, error) {
	l := s.link.Load()
	switch {
	case l == nil:
		return []string{strings.Join(s.connector.option.InitAddress, ",")}, nil
	case l.client.Cluster():
		return clusterServers(ctx, l.client)
	case l.own != nil:
		return []string{strings.Join(slices.Sorted(maps.Keys(l.own.Nodes())), ",")}, nil
	}
	return []string{""}, nil
}

// clusterServers queries the first primary that replies. CLUSTER NODES is text in every version of the protocol.
func clusterServers(ctx context.Context, c Commander) ([]string, error) {
	primaries, err := c.Primaries(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	err = errors.New("no primary replied")
	for _, primary := range primaries {
		var reply any
		if reply, err = primary.Do(ctx, "CLUSTER", "NODES"); err == nil {
			text, _ := reply.(string)
			return shardServers(text), nil
		}
	}
	return nil, unavailable(err)
}

// shardServers parses a reply of CLUSTER NODES. Each line is a server: its ID, its address as host:port@bus, six
// ignored fields, and its slots: numbers, ranges, and in brackets those being migrated.
func shardServers(reply string) []string {
	var servers [clusterShards][]string
	for line := range strings.Lines(reply) {
		fields := strings.Fields(line)
		if len(fields) < 9 {
			continue // a replica, or a primary without slots
		}
		addr, _, _ := strings.Cut(fields[1], "@")
		for _, slots := range fields[8:] {
			from, to, isRange := strings.Cut(slots, "-")
			if !isRange {
				to = from
			}
			first, err1 := strconv.ParseUint(from, 10, 14)
			last, err2 := strconv.ParseUint(to, 10, 14)
			if err1 != nil || err2 != nil || first > last {
				continue
			}
			for shard := first * clusterShards / clusterSlots; shard <= last*clusterShards/clusterSlots; shard++ {
				if !slices.Contains(servers[shard], addr) {
					servers[shard] = append(servers[shard], addr)
				}
			}
		}
	}
	all := make([]string, clusterShards)
	for i := range servers {
		all[i] = strings.Join(servers[i], ",")
	}
	return all
}
