package redistest

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Cluster is a Redis Cluster of three primaries with a replica each.
type Cluster struct {
	Servers []*Server
}

// StartCluster starts a cluster for the test and waits until its replicas are in sync. args are additional arguments
// for all its servers.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	c := new(Cluster)
	create := []string{"--cluster", "create"}
	for range 6 {
		// A node counts as failed after one second, and its replica does not wait before it takes over.
		s := Start(t, append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0",
			"--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0",
		}, args...)...)
		c.Servers = append(c.Servers, s)
		create = append(create, s.Addr)
	}
	create = append(create, "--cluster-replicas", "1", "--cluster-yes")
	if out, err := exec.Command("redis-cli", create...).CombinedOutput(); err != nil {
		t.Fatalf("redis-cli %s: %v\n%s", strings.Join(create, " "), err, out)
	}
	await(t, "the cluster", func() error {
		for _, s := range c.Servers {
			if info, err := s.Do("CLUSTER", "INFO"); err != nil || !strings.Contains(info, "cluster_state:ok") {
				return fmt.Errorf("%s: %v\n%s", s.Addr, err, info)
			}
		}
		for _, s := range c.Replicas() {
			if info, err := s.Do("INFO", "replication"); err != nil || !strings.Contains(info, "master_link_status:up") {
				return fmt.Errorf("%s: %v\n%s", s.Addr, err, info)
			}
		}
		if n := len(c.Replicas()); n != 3 {
			return fmt.Errorf("%d replicas", n)
		}
		return nil
	})
	return c
}

// URL returns a URL with all nodes.
func (c *Cluster) URL() string {
	url := c.Servers[0].URL()
	for i, s := range c.Servers[1:] {
		mark := "&"
		if i == 0 {
			mark = "?"
		}
		url += mark + "addr=" + s.Addr
	}
	return url
}

// Primaries returns the nodes that are currently primaries.
func (c *Cluster) Primaries() []*Server { return c.withRole("role:master") }

// Replicas returns the nodes that are currently replicas.
func (c *Cluster) Replicas() []*Server { return c.withRole("role:slave") }

func (c *Cluster) withRole(role string) (found []*Server) {
	for _, s := range c.Servers {
		if info, err := s.Do("INFO", "replication"); err == nil && strings.Contains(info, role) {
			found = append(found, s)
		}
	}
	return found
}

// Sentinels is a primary with a replica, and three sentinels that monitor them under the name "limits".
type Sentinels struct {
	Servers   []*Server
	Sentinels []*Server
}

// StartSentinels starts the servers for the test.
func StartSentinels(t testing.TB) *Sentinels {
	t.Helper()
	s := new(Sentinels)
	s.Servers = append(s.Servers, Start(t, "--repl-diskless-sync-delay", "0"))
	host, port, _ := strings.Cut(s.Servers[0].Addr, ":")
	s.Servers = append(s.Servers, Start(t, "--repl-diskless-sync-delay", "0", "--replicaof", host, port))
	for range 3 {
		s.Sentinels = append(s.Sentinels, startSentinel(t, host, port))
	}
	await(t, "the sentinels", func() error {
		for _, x := range s.Sentinels {
			info, err := x.Do("INFO", "sentinel")
			if err != nil || !strings.Contains(info, "status=ok") || !strings.Contains(info, "slaves=1,sentinels=3") {
				return fmt.Errorf("%s: %v\n%s", x.Addr, err, info)
			}
		}
		return nil
	})
	return s
}

// URL returns a URL with the sentinels.
func (s *Sentinels) URL() string {
	url := "redis://" + s.Sentinels[0].Addr + "?master_set=limits"
	for _, x := range s.Sentinels[1:] {
		url += "&addr=" + x.Addr
	}
	return url
}

// Primary returns the current primary, or nil.
func (s *Sentinels) Primary() *Server {
	c := Cluster{s.Servers}
	if found := c.Primaries(); len(found) == 1 {
		return found[0]
	}
	return nil
}

// await waits until ready returns nil.
func await(t testing.TB, what string, ready func() error) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("redistest: %s: not ready after a minute: %v", what, err)
		case <-tick.C:
		}
	}
}
