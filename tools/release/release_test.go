package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestErrorsOfWrongCommandLinesSayWhatToWrite(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ args, want string }{
		"nothing":             {"", "image|packages|snapshot"},
		"unknown command":     {"images", `unknown command "images"`},
		"version with v":      {"notes -version v1.2.3", "without v"},
		"no semantic version": {"notes -version 1.2", "semantic version"},
		"build metadata":      {"notes -version 1.2.3+4", "semantic version"},
		"unknown platform":    {"image -platforms linux/386", "linux/386"},
		"image without Linux": {"image -platforms darwin/arm64", "images are for Linux"},
		"argument":            {"image all", `unexpected argument "all"`},
		"no repository":       {"push", "-repository is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := run(t.Context(), strings.Fields(tt.args), io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("release %s: %v, want %q", tt.args, err, tt.want)
			}
		})
	}
}

func TestReleaseTimeIsThatOfTheCommit(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.commit(nil)
	empty := t.TempDir()
	for name, tt := range map[string]struct {
		root, epoch string
		want        time.Time
		revision    bool
	}{
		"in a checkout":            {r.dir, "", time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), true},
		"SOURCE_DATE_EPOCH wins":   {r.dir, "1000000000", time.Unix(1_000_000_000, 0).UTC(), true},
		"outside a checkout":       {empty, "", withoutGit, false},
		"outside, with that epoch": {empty, "1000000000", time.Unix(1_000_000_000, 0).UTC(), false},
	} {
		got, revision, err := commit(t.Context(), tt.root, tt.epoch)
		if err != nil || !got.Equal(tt.want) || (revision != "") != tt.revision {
			t.Errorf("%s: %v, %q, %v, want %v", name, got, revision, err, tt.want)
		}
	}
	if _, _, err := commit(t.Context(), empty, "yesterday"); err == nil || !strings.Contains(err.Error(), `"yesterday"`) {
		t.Errorf("SOURCE_DATE_EPOCH=yesterday: %v", err)
	}
}

func TestArchivesDoNotDependOnTheFilesTimes(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(io.Writer, time.Time, []file) error{"tar.gz": writeTarGz, "zip": writeZip} {
		pack := func(modified time.Time) []byte {
			path := filepath.Join(t.TempDir(), "carillon")
			if err := os.WriteFile(path, []byte("program"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, modified, modified); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := write(&out, withoutGit, []file{{"carillon", path, 0o755}}); err != nil {
				t.Fatal(err)
			}
			return out.Bytes()
		}
		if !bytes.Equal(pack(time.Unix(1, 0)), pack(time.Unix(1_000_000_000, 0))) {
			t.Errorf("%s: files of different times give different archives", name)
		}
	}
}

func TestSnapshotEmptiesNoDirectoryOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept := filepath.Join(dir, "letters")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := run(t.Context(), []string{"snapshot", "-dist", dir}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("snapshot into a directory with files: %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}
