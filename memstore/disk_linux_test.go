package memstore_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/disktest"
	"github.com/sluiceproject/sluice/memstore"
)

// On a full or read-only disk the last snapshot stays.
func TestSnapshotDisk(t *testing.T) {
	disk := disktest.Small(t, 4<<20)
	if disk == "" {
		return
	}
	file := filepath.Join(disk, "state")
	store, err := memstore.Open(memstore.Config{SnapshotFile: file})
	if err != nil {
		t.Fatal(err)
	}
	l := sluice.Must(sluice.New(store, "r", sluice.Per(1000, 24*time.Hour)))
	for i := range 5000 {
		if _, err := l.Allow(background, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.SaveSnapshot(); err != nil {
		t.Fatal(err)
	}
	disktest.Fill(t, filepath.Join(disk, "ballast"), 0)
	checkUnwritable(t, file, store)
	if err := disktest.ReadOnly(disk); err != nil {
		t.Fatal(err)
	}
	checkUnwritable(t, file, store)
	disktest.Writable(t, disk)
}
