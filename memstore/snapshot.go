package memstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/internal/table"
)

// SaveSnapshot writes the store's buckets to the snapshot file. It replaces the file only when the new one is complete
// and on disk; until then, and on an error, the old file stays.
//
// Takes during the call may or may not be in the file. The file contains the secret key of the store's hashes and is
// readable only by its owner.
func (s *Store) SaveSnapshot() (err error) {
	if s.snapshotFile == "" {
		return errors.New("memstore: save: Config.SnapshotFile is empty: set it in memstore.Open")
	}
	dir := filepath.Dir(s.snapshotFile)
	f, err := os.CreateTemp(dir, filepath.Base(s.snapshotFile)+".tmp-*")
	if err != nil {
		return fmt.Errorf("memstore: save: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("memstore: save: %w", err)
		}
	}()
	if err := s.table.Save(f, s.micros()); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), s.snapshotFile); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes a rename durable. Some systems cannot sync a directory; there the system decides when it is durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return nil
}

// open returns a table from the snapshot, or an empty one if there is none. A file that is not a valid snapshot is an
// error, and stays unchanged.
func (s *Store) open(c table.Config) (*table.Table, error) {
	if s.snapshotFile == "" {
		return table.New(c), nil
	}
	if err := plainfile.CheckReplace(s.snapshotFile); err != nil { // otherwise SaveSnapshot would fail later, when it is too late
		return nil, fmt.Errorf("memstore: snapshot: %w: use a directory that exists and that this user can write to", err)
	}
	f, err := plainfile.Open(s.snapshotFile)
	if errors.Is(err, fs.ErrNotExist) {
		return table.New(c), nil
	}
	if err != nil {
		return nil, fmt.Errorf("memstore: snapshot: %w", err)
	}
	defer f.Close()
	now := s.micros()
	t, err := table.Load(f, c, now)
	if err != nil {
		return nil, fmt.Errorf("memstore: snapshot: %s: %w: the file is unchanged: move it to start empty", s.snapshotFile, err)
	}
	switch ahead := t.SavedAt - now; {
	case ahead > maxAhead:
		return table.New(c), nil
	case ahead > 0:
		s.advance(ahead)
	}
	return t, nil
}

// maxAhead is the maximum time that a snapshot may be ahead of the clock, in microseconds. Its keys would be denied
// until that time, so the store clock continues from the time of saving, as it does when the clock is set back while a
// process runs. Beyond maxAhead the clock was wrong, and a store that continued from there would have the wrong month
// or year forever: it starts empty.
const maxAhead = int64(24 * time.Hour / time.Microsecond)

// advance moves the store clock forward by a number of microseconds.
func (s *Store) advance(by int64) {
	s.clock.offset.Add(by)
	if now := s.now; now != nil {
		s.now = func() time.Time { return now().Add(time.Duration(by) * time.Microsecond) }
	}
}
