package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// workflows returns the workflows by name.
func workflows(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatalf("workflows: %v, %v", files, err)
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = string(text)
	}
	return all
}

func TestActionsArePinnedByCommit(t *testing.T) {
	t.Parallel()
	uses := regexp.MustCompile(`uses: (.*)`)
	pinned := regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$|^\./\.github/workflows/`)
	versions := map[string]string{}
	for name, text := range workflows(t) {
		for _, match := range uses.FindAllStringSubmatch(text, -1) {
			if !pinned.MatchString(match[1]) {
				t.Errorf("%s: %s is not pinned by commit and version", name, match[1])
			}
			action, version, _ := strings.Cut(match[1], "@")
			if before, known := versions[action]; known && before != version {
				t.Errorf("%s: %s is %s here and %s elsewhere", name, action, version, before)
			}
			versions[action] = version
		}
	}
}

func TestCheckoutsKeepNoCredentials(t *testing.T) {
	t.Parallel()
	for name, text := range workflows(t) {
		checkouts, closed := strings.Count(text, "uses: actions/checkout@"), strings.Count(text, "persist-credentials: false")
		if checkouts == 0 || checkouts != closed {
			t.Errorf("%s: %d of %d checkouts leave no credentials behind", name, closed, checkouts)
		}
	}
}

func TestPullRequestsReachNoSecret(t *testing.T) {
	t.Parallel()
	for name, text := range workflows(t) {
		if strings.Contains(text, "pull_request_target") {
			t.Errorf("%s runs with secrets for code of others", name)
		}
		if strings.Contains(text, "pull_request:") && (strings.Contains(text, "secrets.") || strings.Contains(text, ": write")) {
			t.Errorf("%s runs for pull requests and has secrets or may write", name)
		}
		if !strings.Contains(text, "\npermissions:") || !strings.Contains(text, "\nconcurrency:") {
			t.Errorf("%s says nothing about permissions or concurrency", name)
		}
	}
}

func TestWorkflowsRunCommandsThatExist(t *testing.T) {
	t.Parallel()
	call := regexp.MustCompile(`go -C tools/release run \. (\w+)`)
	found := call.FindAllStringSubmatch(workflows(t)["release.yml"], -1)
	if len(found) < 4 {
		t.Errorf("the release runs %v", found)
	}
	for _, match := range found {
		if commands()[match[1]] == nil {
			t.Errorf("release.yml runs %q, and there is no command %q", match[0], match[1])
		}
	}
}
