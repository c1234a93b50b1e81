package recommend

import (
	"bufio"
	"encoding/csv"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tokens reads the requests to a language model, with their tokens as costs if costs is set, all under one key.
func tokens(t *testing.T, costs bool) *Traffic {
	t.Helper()
	f, err := os.Open("../logs/testdata/llm-requests.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	traffic := &Traffic{}
	for _, row := range rows[1:] {
		at, err := time.Parse("2006-01-02 15:04:05.9999999", row[0])
		if err != nil {
			t.Fatal(err)
		}
		a := Arrival{Micros: at.UnixMicro(), Cost: 1, Duration: -1}
		if costs {
			prompt, _ := strconv.ParseInt(row[1], 10, 64)
			generated, _ := strconv.ParseInt(row[2], 10, 64)
			a.Cost = prompt + generated
		}
		traffic.Add(a)
	}
	return traffic
}

var combinedLine = regexp.MustCompile(`^(\S+) \S+ \S+ \[([^\]]+)\] "[^"]*" \d+ \S+ "[^"]*" "([^"]*)"`)

// accessLog reads a log in the combined format.
func accessLog(t *testing.T, name string) []Arrival {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []Arrival
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := combinedLine.FindStringSubmatch(lines.Text())
		if m == nil {
			t.Fatalf("%s: %s", name, lines.Text())
		}
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Arrival{
			Micros: at.UnixMicro(), Key: m[1], Cost: 1, Duration: -1,
			Crawler: strings.Contains(strings.ToLower(m[3]), "bot") || strings.Contains(strings.ToLower(m[3]), "crawl"),
		})
	}
	return all
}

// moved returns requests in 198.19.0.0/16 that begin at a time.
func moved(t *testing.T, all []Arrival, micros int64) []Arrival {
	t.Helper()
	all = slices.Clone(all)
	shift := micros - all[0].Micros
	for i := range all {
		addr, err := netip.ParseAddr(all[i].Key)
		if err != nil {
			t.Fatal(err)
		}
		b := addr.As4()
		all[i].Key = netip.AddrFrom4([4]byte{198, 19, b[2], b[3]}).String()
		all[i].Micros += shift
	}
	return all
}

// trafficOf returns the traffic of requests in any order.
func trafficOf(all ...[]Arrival) *Traffic {
	merged := slices.Concat(all...)
	slices.SortStableFunc(merged, func(x, y Arrival) int { return int(x.Micros - y.Micros) })
	t := &Traffic{}
	for _, a := range merged {
		t.Add(a)
	}
	return t
}
