package db

import (
	"fmt"
	"path/filepath"
)

// CheckFileSystem refuses a SQLite database on a network file system. Its locks do not exclude other machines, and its
// write-ahead log needs memory shared by all its processes; so a ledger there is soon damaged, and fires come twice.
// kind returns the type of the file system of a directory.
func CheckFileSystem(path string, kind func(dir string) (uint32, error)) error {
	dir := filepath.Dir(path)
	found, err := kind(dir)
	if err != nil {
		return nil //nolint:nilerr // the directory is missing, which the next step reports
	}
	name, network := networkFileSystems[found]
	if !network {
		return nil
	}
	return fmt.Errorf("%s is on a network file system (%s), where SQLite loses data, because locks there do not hold; "+
		"use a disk of this machine, such as EBS, or PostgreSQL, which also serves several nodes", dir, name)
}

// networkFileSystems has their types by the numbers of statfs(2) on Linux. EFS is NFS.
var networkFileSystems = map[uint32]string{
	0x00006969: "NFS",
	0x0000517b: "SMB",
	0xfe534d42: "SMB",
	0xff534d42: "CIFS",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
	0x73757245: "Coda",
}
