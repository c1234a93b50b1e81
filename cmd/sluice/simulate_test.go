package main

import (
	"bytes"
	"strings"
	"testing"
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
