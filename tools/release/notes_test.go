package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a git repository of a test.
type repository struct {
	t   *testing.T
	dir string
}

func newRepository(t *testing.T) repository {
	t.Helper()
	r := repository{t: t, dir: t.TempDir()}
	r.git("init", "-q", "-b", "main")
	return r
}

func (r repository) git(args ...string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull,
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com",
		"GIT_AUTHOR_DATE=2026-11-22T12:00:00Z", "GIT_COMMITTER_DATE=2026-11-22T12:00:00Z")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// commit writes files and commits them; an empty text deletes a file.
func (r repository) commit(files map[string]string) {
	r.t.Helper()
	for name, text := range files {
		path := filepath.Join(r.dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if text == "" {
			err = os.Remove(path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", "change")
}

// command runs a command of the tool in the repository, and returns its output and error.
func (r repository) command(args ...string) (string, string) {
	r.t.Helper()
	var out bytes.Buffer
	problem := ""
	if err := run(r.t.Context(), append(args, "-root", r.dir), &out); err != nil {
		problem = err.Error()
	}
	return out.String(), problem
}

const (
	plain = "# Changelog\n\n## [Unreleased]\n\n## [1.1.0] - 2026-11-22\n\n### Added\n\n- A [thing](docs/thing.md#use).\n\n" +
		"## [1.0.0] - 2026-01-01\n\n- All.\n"
	upgrade = "## [1.1.0] - 2026-11-22\n\n- A thing.\n\n### Upgrade notes\n\nYou cannot go back.\n"
	hollow  = "## [1.1.0] - 2026-11-22\n\n- A thing.\n\n### Upgrade notes\n\n### Fixed\n\n- Another.\n"
	older   = "## [1.1.0] - 2026-11-22\n\n- A thing.\n\n## [1.0.0] - 2026-01-01\n\n### Upgrade notes\n\nOf then.\n"
	first   = "-- +goose Up\nCREATE TABLE a (id TEXT); -- a comment\n-- +goose Down\nDROP TABLE a;\n"
	changed = "-- +goose Up\nCREATE TABLE a (id BLOB);\n"
	ledger  = "migrations/postgres/00001_ledger.sql"
	adds    = "-- +goose Up\n-- We DROP TABLE nothing.\nALTER TABLE a ADD COLUMN b TEXT;\nDROP INDEX a_b;\n" +
		"-- +goose Down\nALTER TABLE a DROP COLUMN b;\n"
	drops    = "-- +goose Up\nALTER TABLE a\n  DROP\n  COLUMN c;\n"
	renames  = "-- +goose Up\nALTER TABLE a RENAME COLUMN b TO c;\n"
	tightens = "-- +goose Up\nALTER TABLE a ALTER COLUMN b TYPE bigint;\n"
)

func TestNotesDemandUpgradeNotesForMigrations(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		changelog string
		files     map[string]string
		want      string // in the error; empty: none
	}{
		"no migration":              {plain, nil, ""},
		"only adds":                 {plain, map[string]string{"migrations/postgres/00002_b.sql": adds}, ""},
		"drops a column":            {plain, map[string]string{"migrations/postgres/00002_b.sql": drops}, `00002_b.sql says "DROP COLUMN"`},
		"renames":                   {plain, map[string]string{"migrations/sqlite/00002_b.sql": renames}, `00002_b.sql says "RENAME"`},
		"changes a type":            {plain, map[string]string{"migrations/postgres/00002_b.sql": tightens}, `"ALTER COLUMN"`},
		"a new thousand":            {plain, map[string]string{"migrations/postgres/01000_b.sql": adds}, "01000_b.sql begins a new thousand"},
		"and has upgrade notes":     {upgrade, map[string]string{"migrations/postgres/01000_b.sql": adds}, ""},
		"empty upgrade notes":       {hollow, map[string]string{"migrations/postgres/00002_b.sql": drops}, `"### Upgrade notes"`},
		"those of another version":  {older, map[string]string{"migrations/postgres/00002_b.sql": drops}, `"### Upgrade notes"`},
		"a released one changed":    {upgrade, map[string]string{ledger: changed}, "was released with v1.0.0 and has changed"},
		"only its comment changed":  {plain, map[string]string{ledger: strings.Replace(first, "a comment", "another", 1)}, ""},
		"a released one is missing": {upgrade, map[string]string{ledger: ""}, "was released with v1.0.0 and is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t)
			r.commit(map[string]string{ledger: first})
			r.git("tag", "v1.0.0")
			r.commit(map[string]string{"CHANGELOG.md": tt.changelog})
			r.commit(tt.files)
			r.git("tag", "v1.1.0")
			_, problem := r.command("notes", "-version", "1.1.0")
			if tt.want == "" && problem != "" {
				t.Errorf("notes refuses: %s", problem)
			}
			if !strings.Contains(problem, tt.want) {
				t.Errorf("notes says %q, want %q", problem, tt.want)
			}
		})
	}
}

func TestNotesCompareWithTheVersionThatPeopleRun(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.commit(map[string]string{ledger: first, "CHANGELOG.md": plain})
	r.git("tag", "v1.0.0")
	r.commit(map[string]string{"migrations/postgres/01000_b.sql": adds})
	r.git("tag", "v1.1.0-rc.1")
	r.commit(nil)
	if _, problem := r.command("notes", "-version", "1.1.0"); !strings.Contains(problem, "v1.0.0 refuses to start") {
		t.Errorf("notes of 1.1.0 after 1.1.0-rc.1 says %q, want a comparison with v1.0.0", problem)
	}
}

func TestNotesOfTheFirstVersionNeedNoUpgradeNotes(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.commit(map[string]string{ledger: drops, "CHANGELOG.md": plain})
	r.git("tag", "v1.1.0")
	if _, problem := r.command("notes", "-version", "1.1.0"); problem != "" {
		t.Error(problem)
	}
}

func TestNotesRefuseACheckoutWithoutHistory(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.commit(map[string]string{"CHANGELOG.md": plain})
	r.commit(nil)
	shallow := repository{t: t, dir: filepath.Join(t.TempDir(), "clone")}
	r.git("clone", "-q", "--depth", "1", "file://"+r.dir, shallow.dir)
	if _, problem := shallow.command("notes", "-version", "1.1.0"); !strings.Contains(problem, "no history") {
		t.Errorf("notes in a shallow clone says %q", problem)
	}
}

func TestNotesPrintTheSectionOfTheVersion(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.commit(map[string]string{"CHANGELOG.md": plain})
	got, problem := r.command("notes", "-version", "1.1.0")
	want := "### Added\n\n- A [thing](https://github.com/carillon-dev/carillon/blob/v1.1.0/docs/thing.md#use).\n"
	if problem != "" || got != want {
		t.Errorf("notes = %q, %q, want %q", got, problem, want)
	}
}

func TestNotesRefuseAVersionWithoutASection(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ changelog, want string }{
		"none":         {"## [1.0.0] - 2026-01-01\n\n- All.\n", "no section of 1.1.0"},
		"without date": {"## [1.1.0]\n\n- All.\n", "no section of 1.1.0"},
		"a longer one": {"## [1.1.0-rc.1] - 2026-01-01\n\n- All.\n", "no section of 1.1.0"},
		"empty":        {"## [1.1.0] - 2026-01-01\n\n## [1.0.0] - 2026-01-01\n\n- All.\n", "is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t)
			r.commit(map[string]string{"CHANGELOG.md": tt.changelog})
			if _, problem := r.command("notes", "-version", "1.1.0"); !strings.Contains(problem, tt.want) {
				t.Errorf("notes says %q, want %q", problem, tt.want)
			}
		})
	}
}
