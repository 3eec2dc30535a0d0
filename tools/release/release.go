package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are the flags of every command.
type options struct {
	version, root, dist, platforms, repository string
}

// release is one run of a command.
type release struct {
	root, dist string
	version    string
	revision   string     // the commit; empty outside a checkout
	created    time.Time  // of the commit, because the clock must not change the bytes
	platforms  []platform // empty for all that a command builds
	work       string     // directory of the programs, each built once
	repository string     // of push
	out        io.Writer
}

// platform is an operating system and processor, as Go names them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// Semantic Versioning without build metadata, which image tags and provider registries do not accept.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// newRelease checks the options, and reads the commit and its time from git.
func newRelease(ctx context.Context, o options, out io.Writer) (*release, error) {
	if !semver.MatchString(o.version) {
		return nil, fmt.Errorf("-version %q is not a semantic version; write it as 1.2.3 or 1.2.3-rc.1, without v", o.version)
	}
	root, err := filepath.Abs(o.root)
	if err != nil {
		return nil, err
	}
	r := &release{root: root, dist: filepath.Join(root, "dist"), version: o.version, repository: o.repository, out: out}
	if o.dist != "" {
		if r.dist, err = filepath.Abs(o.dist); err != nil {
			return nil, err
		}
	}
	if r.platforms, err = parsePlatforms(o.platforms); err != nil {
		return nil, err
	}
	if r.created, r.revision, err = commit(ctx, root, os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return nil, err
	}
	r.work, err = os.MkdirTemp("", "carillon-release-")
	return r, err
}

// close removes the built programs.
func (r *release) close() error { return os.RemoveAll(r.work) }

func parsePlatforms(list string) ([]platform, error) {
	if list == "" {
		return nil, nil
	}
	var all []platform
	for name := range strings.SplitSeq(list, ",") {
		goos, arch, ok := strings.Cut(name, "/")
		p := platform{goos, arch}
		if !ok || !slices.Contains(everyPlatform(), p) {
			return nil, fmt.Errorf("-platforms: %q is not one of %v", name, everyPlatform())
		}
		all = append(all, p)
	}
	return all, nil
}

func everyPlatform() []platform {
	return []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}
}

// builds returns the platforms to build for.
func (r *release) builds() []platform {
	if len(r.platforms) > 0 {
		return r.platforms
	}
	return everyPlatform()
}

// linux returns the platforms that have packages and an image.
func (r *release) linux() []platform {
	return slices.DeleteFunc(slices.Clone(r.builds()), func(p platform) bool { return p.os != "linux" })
}

// withoutGit is the time of a tree outside a checkout. It is constant, so that the bytes stay the same.
var withoutGit = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// commit returns the time and the name of the checked out commit. SOURCE_DATE_EPOCH, if set, replaces the time.
func commit(ctx context.Context, root, epoch string) (created time.Time, revision string, err error) {
	seconds := epoch
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		log, err := git(ctx, root, "log", "-1", "--format=%ct %H")
		if err != nil {
			return created, "", err
		}
		var of string
		of, revision, _ = strings.Cut(strings.TrimSpace(log), " ")
		if epoch == "" {
			seconds = of
		}
	}
	if seconds == "" {
		return withoutGit, "", nil
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return created, "", fmt.Errorf("SOURCE_DATE_EPOCH=%q is not a number of seconds", seconds)
	}
	return time.Unix(unix, 0).UTC(), revision, nil
}

// git runs git in a directory and returns its output.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}
