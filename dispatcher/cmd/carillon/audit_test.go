package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
)

// audit runs carillon audit against a node.
func (n *process) audit(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return carillon(t, []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + n.token}, append([]string{"audit"}, args...)...)
}

func TestAuditShowsChangesByFilters(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database))
	for i, description := range []string{"one", "two\nlines"} {
		app := access.App{Name: "books", AppSpec: access.AppSpec{Description: description, Enabled: true}}
		must[access.App](t)(n.PutApp(t.Context(), app, client.Condition{Existing: i > 0}))
	}
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	if _, err := n.PutApp(t.Context(), access.App{Name: "books"}, client.Condition{Revision: 9}); err == nil {
		t.Fatal("a stale change was not refused")
	}
	out, errs, code := n.audit(t, "books", "--made")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || errs != "" || len(lines) != 2 || !strings.Contains(lines[1], "put app books  revision 1") ||
		!strings.HasSuffix(lines[0], "put app books  revision 2  changed: description") || !strings.Contains(lines[1], "  e2e (") ||
		!strings.Contains(lines[1], "  127.0.0.1  ") {
		t.Errorf("audit: exit %d, %s\n%s", code, errs, out)
	}
	until(t, "the refusal to be in the log", func() bool {
		out, _, _ = n.audit(t, "--refused")
		return strings.HasSuffix(out, "put app books  refused: precondition_failed\n")
	})
	out, _, code = n.audit(t, "books", "--output=jsonl", "--limit=2", "--made")
	var entry access.AuditEntry
	lines = strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[0]), &entry); err != nil || code != 0 || len(lines) != 2 ||
		entry.Subject != "app books" || entry.Revision != 2 {
		t.Errorf("audit --json: exit %d, %v:\n%s", code, err, out)
	}
	all, _, _ := n.audit(t, "--since=2000-01-01T00:00:00Z", "--made")
	latest, _, _ := n.audit(t, "--limit=1", "--made")
	if !strings.HasPrefix(all, latest) || strings.Count(latest, "\n") != 1 || strings.Count(all, "\n") < 4 {
		t.Errorf("all:\n%slatest:\n%s", all, latest)
	}
	for _, args := range [][]string{
		{"--follow", "--until=2026-05-01T00:00:00Z"}, {"--made", "--refused"}, {"--since=x"},
		{"--follow", "--output=json"}, {"--limit=1001"}, {"books", "extra"}, {"books/b", "--subject=x"},
	} {
		if _, errs, code := n.audit(t, args...); code != exitUsage {
			t.Errorf("audit %v: exit %d, want %d: %s", args, code, exitUsage, errs)
		}
	}
	for args, want := range map[string]int{
		"NONE": exitFailure, "--token=carillon_wrong": exitRefused, "--token=carillon_wrong --follow": exitRefused,
		"--endpoint=http://127.0.0.1:1": exitUnreachable,
	} {
		if _, errs, code := n.audit(t, strings.Fields(args)...); code != want || errs == "" {
			t.Errorf("audit %v: exit %d, want %d: %s", args, code, want, errs)
		}
	}
}

func TestAuditPrintsNoControlCharacters(t *testing.T) {
	t.Parallel()
	e := access.AuditEntry{Actor: "ann\x1b[2J", Action: "put", Subject: "app \u009bx\u202e",
		After: json.RawMessage("{\"a\":\"\u009b\u202e<\"}")}
	var out strings.Builder
	if err := printJSONLine(&out, e); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{strings.TrimSuffix(out.String(), "\n"), auditLine(e)} {
		if strings.ContainsAny(text, "\x1b\n\u009b") {
			t.Errorf("%q holds a control character", text)
		}
	}
	var again access.AuditEntry
	if err := json.Unmarshal([]byte(out.String()), &again); err != nil || again.Subject != e.Subject || string(again.After) == "" {
		t.Errorf("the line does not read back: %v\n%s", err, out.String())
	}
}

// A follower of the log gets each entry once, although changes race and the node restarts.
func TestAuditFollowMissesNothing(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		token := newToken(t, database)
		n := startNode(t, database, token)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "before", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		follow := exec.CommandContext(t.Context(), filepath.Join(binaries, "carillon"),
			"audit", "--follow", "--output=jsonl", "--action=put", "--limit=1")
		follow.Env = append(os.Environ(), "CARILLON_ENDPOINT="+n.endpoint, "CARILLON_TOKEN="+token)
		errs := &lockedBuffer{}
		follow.Stderr = errs
		pipe, err := follow.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := follow.Start(); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		seen := map[string]int{}
		read := make(chan struct{})
		go func() {
			defer close(read)
			for lines := bufio.NewScanner(pipe); lines.Scan(); {
				var e access.AuditEntry
				if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
					t.Errorf("%v: %s", err, lines.Text())
				}
				mu.Lock()
				seen[e.Subject]++
				mu.Unlock()
			}
		}()
		got := func(subject string) int {
			mu.Lock()
			defer mu.Unlock()
			return seen[subject]
		}
		until(t, "the latest entry", func() bool { return got("app before") == 1 })
		const writers, each = 4, 10
		race := func(name string) {
			var wait sync.WaitGroup
			for w := range writers {
				wait.Go(func() {
					for i := range each {
						app := access.App{Name: fmt.Sprintf("%s-%d-%d", name, w, i)}
						if _, err := n.PutApp(t.Context(), app, client.Condition{}); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wait.Wait()
		}
		race("first")
		n.terminate()
		until(t, "the outage to be noticed", func() bool { return strings.Contains(errs.String(), "unreachable") })
		again := launchNode(t, database, token, nil, "--listen="+strings.TrimPrefix(n.endpoint, "http://"))
		again.endpoint, again.Client = n.endpoint, n.Client
		again.awaitReady()
		race("second")
		until(t, "all entries", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(seen) == 1+2*writers*each
		})
		if err := follow.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-read
		if err := follow.Wait(); err != nil {
			t.Errorf("audit --follow ended with %v, want exit code 0: %s", err, errs)
		}
		for subject, times := range seen {
			if times != 1 {
				t.Errorf("%s came %d times", subject, times)
			}
		}
	})
}
