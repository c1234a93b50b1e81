package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// A dash is standard input, together with files.
func TestSimulateStandardInput(t *testing.T) {
	line := `192.0.2.1 - - [02/Jan/2026:15:04:05 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	c := simulateCommand()
	var out bytes.Buffer
	c.SetIn(strings.NewReader(strings.Repeat(line, 30)))
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs([]string{"--rules", "testdata/traffic/rules", "-", "testdata/traffic/flood.log"})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "110 requests from 2023-07-18") || !strings.Contains(out.String(), "by-address        110       70") {
		t.Errorf("it prints\n%s", &out)
	}
}

// A long replay prints its progress every few seconds, a short one does not.
func TestSimulateProgress(t *testing.T) {
	var out bytes.Buffer
	p := &simulateProgress{w: &out, began: time.Now()}
	p.report(1)
	if out.Len() > 0 {
		t.Errorf("progress %q was printed at once", &out)
	}
	p.began = p.began.Add(-progressInterval)
	p.report(1_000_000)
	p.report(1_000_001)
	if strings.Count(out.String(), "\n") != 1 || !strings.HasPrefix(out.String(), "sluice simulate: 1000000 requests, ") {
		t.Errorf("progress is %q", &out)
	}
}
