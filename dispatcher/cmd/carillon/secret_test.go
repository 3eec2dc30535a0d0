package main

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

func TestNewKeyFileIsForItsOwnerOnlyWhateverTheUmask(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret.keys")
	script := `umask 0; exec "$0" secret key --out "$1"`
	out, err := exec.CommandContext(t.Context(), "sh", "-c", script, filepath.Join(binaries, "carillon"), file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := string(must[[]byte](t)(os.ReadFile(file)))
	if key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err != nil || len(key) != 32 {
		t.Errorf("the file holds %d bytes of a key, %v", len(key), err)
	}
	if strings.Contains(string(out), strings.TrimSpace(text)) {
		t.Error("the key is printed, too")
	}
	if mode := must[os.FileInfo](t)(os.Stat(file)).Mode().Perm(); mode != 0o600 {
		t.Errorf("the file has mode %o, want 600", mode)
	}
	if all := must[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(file))); len(all) != 1 {
		t.Errorf("the directory holds %v, want the key only", all)
	}
	// An existing file may have keys that stored secrets need.
	_, errs, code := carillon(t, nil, "secret", "key", "--out", file)
	if code == 0 || !strings.Contains(errs, file) || !strings.Contains(errs, "the file exists") {
		t.Errorf("exit %d, %s, want that the file exists", code, errs)
	}
	if after := string(must[[]byte](t)(os.ReadFile(file))); after != text {
		t.Error("the key in the file was replaced")
	}
}

func TestNodeWarnsOfFilesThatOthersCanRead(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	dir := t.TempDir()
	file, keys := filepath.Join(dir, "carillon.db"), filepath.Join(dir, "keys")
	database := "sqlite:" + file
	token := newToken(t, database)
	if _, errs, code := carillon(t, nil, "secret", "key", "--out", keys); code != 0 {
		t.Fatal(errs)
	}
	log := func() string {
		n := startNodeWith(t, database, token, nil, "--secret-keys-file="+keys)
		n.terminate()
		return n.logs.String()
	}
	if log := log(); strings.Contains(log, "open to other users") {
		t.Errorf("a node warns of files of its own:\n%s", log)
	}
	for path, mode := range map[string]os.FileMode{file: 0o644, keys: 0o604} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	text := log()
	for _, want := range []string{"chmod 600 " + file, "chmod 600 " + keys} {
		if !strings.Contains(text, want) {
			t.Errorf("log does not say %q:\n%s", want, text)
		}
	}
}
