package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Without this test, a changed statement would silently end the faults that hit it.
func TestProxyRecognizesTheWritesOfTheStore(t *testing.T) {
	t.Parallel()
	for statement, want := range map[string]bool{
		"claim": true, "claim_live": true, "settle": true, "record": true, "record_live": true, "record_retry": true,
		"record_live_retry": true, "adopt": true, "retry": true, "begin": true, "release": true, "lost": true, "give_up": true,
		"schedule_next": true, "due": false, "adopt_find": false, "retry_find": false, "held": false, "heartbeat": false, "locks_take": false,
	} {
		text, err := os.ReadFile("../../dispatcher/store/testdata/postgres/" + statement + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		// In the source, the statement is formatted for people.
		text = bytes.Join(bytes.Fields(text), []byte(" "))
		if got := writes(text, false); got != want {
			t.Errorf("the statement %s is taken for a write: %v, want %v", statement, got, want)
		}
		if writes(text, true) {
			t.Errorf("the statement %s is taken for the end of its transaction", statement)
		}
	}
	if !writes([]byte("Q\x00\x00\x00\x0bcommit\x00"), true) {
		t.Error("the end of a transaction is not taken for a write")
	}
}

// The store sends its statements exactly as in its source.
func TestSignsOfWritesAreInTheSource(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../dispatcher/store/*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of the store, %v", len(files), err)
	}
	var source []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source = append(source, text...)
	}
	for _, sign := range signs {
		if !bytes.Contains(source, sign) {
			t.Errorf("no statement of the store contains %q; adapt the signs of the proxy", sign)
		}
	}
}
