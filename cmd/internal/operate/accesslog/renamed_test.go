package accesslog

import "testing"

// TestRenamedField checks that a line with an old field is an error that names the new one, instead of a request of an
// unknown client.
func TestRenamedField(t *testing.T) {
	var r Record
	if err := ParseJSON(`{"time":"2026-01-02T15:04:05Z","client":"192.0.2.1"}`, &r); err == nil || err.Error() != "client: renamed: write client_ip" {
		t.Errorf("got %v", err)
	}
}
