package schedule

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Files of a zoneinfo directory that name its release.
const (
	versionFile = "+VERSION"  // the name alone, as IANA's Makefile and macOS have it
	sourceFile  = "tzdata.zi" // the source of all zones; its first line is "# version 2026f"
)

// releasePattern matches the name of a release.
var releasePattern = regexp.MustCompile(`^\d{4}[a-z]{1,2}$`)

func parseRelease(text string) (string, error) {
	name := strings.TrimSpace(text)
	if !releasePattern.MatchString(name) {
		return "", fmt.Errorf("%.20q is not the name of a release, such as 2026f", name)
	}
	return name, nil
}

// ReleaseOf returns the release that a zoneinfo directory says it has, and when its file was written.
func ReleaseOf(dir fs.FS) (release string, written time.Time, err error) {
	for _, name := range []string{sourceFile, versionFile} {
		file, err := dir.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", time.Time{}, err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return "", time.Time{}, err
		}
		first, err := bufio.NewReader(io.LimitReader(file, 100)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", time.Time{}, fmt.Errorf("%s: %w", name, err)
		}
		release, err = parseRelease(strings.TrimPrefix(first, "# version "))
		if err != nil {
			return "", time.Time{}, fmt.Errorf("%s: %w", name, err)
		}
		return release, info.ModTime(), nil
	}
	return "", time.Time{}, fmt.Errorf("there is neither %s nor %s, so the release is unknown", sourceFile, versionFile)
}

// PackZones makes an archive for OpenZones of a zoneinfo directory, such as /usr/share/zoneinfo. released is the day of
// the release; zero: when the directory was written. Equal directories and days make equal archives.
func PackZones(dir fs.FS, released time.Time) ([]byte, error) {
	release, written, err := ReleaseOf(dir)
	if err != nil {
		return nil, err
	}
	if released.IsZero() {
		released = written
	}
	zones, err := readZoneFiles(dir)
	if err != nil {
		return nil, err
	}
	if err := addLinks(dir, zones); err != nil {
		return nil, err
	}
	zones[versionFile] = []byte(release + "\n")
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		file, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: released.UTC().Truncate(time.Second)})
		if err != nil {
			return nil, err
		}
		if _, err := file.Write(zones[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}

// readZoneFiles returns the files of all zones by name.
func readZoneFiles(dir fs.FS) (map[string][]byte, error) {
	zones := map[string][]byte{}
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "posix" || name == "right"): // copies of all, and copies with leap seconds
			return fs.SkipDir
		// Zones that are a setting of the host. Factory is that of a host on which nobody has set one.
		case entry.IsDir(), name == "localtime", name == "posixrules", name == "Factory":
			return nil
		}
		if info, err := fs.Stat(dir, name); err != nil || !info.Mode().IsRegular() { // a link to a directory, or to nothing
			return nil //nolint:nilerr // OpenZones knows which names are missing
		}
		data, err := fs.ReadFile(dir, name)
		if err != nil || !bytes.HasPrefix(data, []byte("TZif")) {
			return err
		}
		const leaps = 28 // offset of the number of leap seconds, RFC 9636, section 3.1
		if len(data) < leaps+4 || binary.BigEndian.Uint32(data[leaps:]) != 0 {
			return fmt.Errorf("zone %s counts leap seconds; use the directory without \"right\"", name)
		}
		zones[name] = data
		return nil
	})
	return zones, err
}

// addLinks adds the names that the source has as links, because distributions leave old names such as US/Pacific
// to a package of their own.
func addLinks(dir fs.FS, zones map[string][]byte) error {
	source, err := fs.ReadFile(dir, sourceFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(source)) {
		link := strings.Fields(line)
		if len(link) != 3 || link[0] != "L" || zones[link[2]] != nil {
			continue
		}
		if data := zones[link[1]]; data != nil {
			zones[link[2]] = data
		}
	}
	return nil
}
