package disktest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// inside says that a test runs in a name space of its own.
const inside = "SLUICE_DISK_IN_NAMESPACE"

// Small mounts a file system of so many bytes until the test ends. Who may not mount is tested in a name space of its own,
// where everybody may: then it returns "", and the test is over.
func Small(t *testing.T, bytes int) string {
	t.Helper()
	directory := t.TempDir()
	err := syscall.Mount("tmpfs", directory, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes))
	if errors.Is(err, syscall.EPERM) && os.Getenv(inside) == "" {
		c := exec.Command("unshare", "-rm", os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
		c.Env = append(os.Environ(), inside+"=1")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(directory, syscall.MNT_DETACH) })
	return directory
}

// Fill takes what room there is for a file, but for a little.
func Fill(t *testing.T, path string, leave int64) {
	t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(path), &fs); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, int64(fs.Bavail)*fs.Bsize-leave)
	if err := os.WriteFile(path, b, 0o600); err != nil && !errors.Is(err, syscall.ENOSPC) { // others write too
		t.Fatal(err)
	}
}

// ReadOnly makes a disk read-only, which fails while files are open for writing.
func ReadOnly(disk string) error {
	return syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
}

// Writable ends what ReadOnly began.
func Writable(t *testing.T, disk string) {
	t.Helper()
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
}
