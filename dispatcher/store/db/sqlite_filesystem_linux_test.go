package db_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

func TestSQLiteIsRefusedOnNetworkFileSystemsOnly(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kind uint32
		want string
	}{
		"NFS, and EFS":   {unix.NFS_SUPER_MAGIC, "(NFS)"},
		"SMB":            {unix.SMB_SUPER_MAGIC, "(SMB)"},
		"SMB 2":          {unix.SMB2_SUPER_MAGIC, "(SMB)"},
		"CIFS":           {unix.CIFS_SUPER_MAGIC, "(CIFS)"},
		"AFS":            {unix.AFS_SUPER_MAGIC, "(AFS)"},
		"AFS of Linux":   {unix.AFS_FS_MAGIC, "(AFS)"},
		"Ceph":           {unix.CEPH_SUPER_MAGIC, "(Ceph)"},
		"Coda":           {unix.CODA_SUPER_MAGIC, "(Coda)"},
		"ext4":           {unix.EXT4_SUPER_MAGIC, ""},
		"XFS":            {unix.XFS_SUPER_MAGIC, ""},
		"btrfs":          {unix.BTRFS_SUPER_MAGIC, ""},
		"memory":         {unix.TMPFS_MAGIC, ""},
		"an overlay":     {unix.OVERLAYFS_SUPER_MAGIC, ""},
		"FUSE":           {unix.FUSE_SUPER_MAGIC, ""},
		"that of a host": {unix.V9FS_MAGIC, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := db.CheckFileSystem("/var/lib/carillon/carillon.db", func(dir string) (uint32, error) {
				if dir != "/var/lib/carillon" {
					t.Errorf("asked for %s, want the directory", dir)
				}
				return tt.kind, nil
			})
			if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) ||
				!strings.Contains(err.Error(), "/var/lib/carillon is on") || !strings.Contains(err.Error(), "PostgreSQL")) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if err := db.CheckFileSystem("x.db", func(string) (uint32, error) { return 0, errors.New("unknown") }); err != nil {
		t.Errorf("a directory that is unknown: %v", err)
	}
}

func TestFileSystemOfThisMachineIsKnown(t *testing.T) {
	t.Parallel()
	if kind, err := db.FileSystem("/proc"); err != nil || kind != unix.PROC_SUPER_MAGIC {
		t.Errorf("/proc: got %#x, %v, want %#x", kind, err, unix.PROC_SUPER_MAGIC)
	}
	if _, err := db.FileSystem(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a missing directory has a file system")
	}
}
