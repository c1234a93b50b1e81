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

// SaveSnapshot writes the store's states to the snapshot file. The file is replaced only when the new one is whole and on
// disk; until then, and if anything goes wrong, the old one stays.
//
// Takes go on meanwhile, and may or may not be in the file. The file holds the secret that the
// store's hashes are keyed with, and is readable by its owner only.
func (s *Store) SaveSnapshot() (err error) {
	if s.snapshotFile == "" {
		return errors.New("memstore: save: Config.SnapshotFile names no file")
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

// syncDir makes a rename last. Some systems cannot sync a directory; there the rename lasts when they say so.
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

// open returns a table from the snapshot, or an empty one if there is none. A file that is there but is not a whole
// snapshot is an error, and is left as it is.
func (s *Store) open(c table.Config) (*table.Table, error) {
	if s.snapshotFile == "" {
		return table.New(c), nil
	}
	if err := plainfile.CheckReplace(s.snapshotFile); err != nil { // SaveSnapshot would fail, when it is too late
		return nil, fmt.Errorf("memstore: snapshot: %w: create the directory, or name a file in one that this user can write to", err)
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
		return nil, fmt.Errorf("memstore: snapshot %s: %w; it was left as it is: move it away to start empty", s.snapshotFile, err)
	}
	switch ahead := t.SavedAt - now; {
	case ahead > maxAhead:
		return table.New(c), nil
	case ahead > 0:
		s.advance(ahead)
	}
	return t, nil
}

// maxAhead is how far in the future a snapshot may have been saved, in microseconds. Because its keys would be denied until
// then, the store's clock continues from the time of saving, as it does when the clock is set back while a process runs. Farther
// ahead the clock was wrong, and a store that continued from there would have the wrong month or year for ever: it starts empty.
const maxAhead = int64(24 * time.Hour / time.Microsecond)

// advance sets the store's clock forward by so many microseconds.
func (s *Store) advance(by int64) {
	s.clock.offset.Add(by)
	if now := s.now; now != nil {
		s.now = func() time.Time { return now().Add(time.Duration(by) * time.Microsecond) }
	}
}
