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

// inside is set while a test runs in its own mount namespace.
const inside = "SLUICE_DISK_IN_NAMESPACE"

// Small mounts a file system of this size in bytes until the test ends. If the process may not mount, the test is run
// in its own user and mount namespace, where it may: then Small returns "", and the caller must return.
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

// Fill writes a file that uses all free space except leave bytes.
func Fill(t *testing.T, path string, leave int64) {
	t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(path), &fs); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, int64(fs.Bavail)*fs.Bsize-leave)
	if err := os.WriteFile(path, b, 0o600); err != nil && !errors.Is(err, syscall.ENOSPC) { // other processes may write too
		t.Fatal(err)
	}
}

// ReadOnly makes a disk read-only, which fails while files are open for writing.
func ReadOnly(disk string) error {
	return syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
}

// Writable reverts ReadOnly.
func Writable(t *testing.T, disk string) {
	t.Helper()
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
}
