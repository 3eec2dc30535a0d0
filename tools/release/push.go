package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// push pushes dist/image to a repository, with the credentials of "docker login". It prints the
// reference by digest, for signing and deployments.
func (r *release) push(ctx context.Context) error {
	if r.repository == "" {
		return errors.New("-repository is missing; write the image's name, such as ghcr.io/carillon-dev/carillon")
	}
	repository, err := name.NewRepository(r.repository)
	if err != nil {
		return err
	}
	index, err := readLayout(filepath.Join(r.dist, imageDir))
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	pushed := repository.Digest(digest.String())
	if err := remote.WriteIndex(pushed, index, options...); err != nil {
		return fmt.Errorf("push %s: %w", pushed, err)
	}
	for _, tag := range imageTags(r.version) {
		if err := remote.Tag(repository.Tag(tag), index, options...); err != nil {
			return fmt.Errorf("tag %s: %w", repository.Tag(tag), err)
		}
	}
	_, err = fmt.Fprintln(r.out, pushed)
	return err
}

// imageTags returns the version and, for a final version, its series. It returns no "latest":
// deployments use a digest, and people a version.
func imageTags(version string) []string {
	if strings.Contains(version, "-") {
		return []string{version}
	}
	series := version[:strings.LastIndex(version, ".")]
	return []string{version, series}
}

// readLayout returns the only index of an OCI layout.
func readLayout(dir string) (v1.ImageIndex, error) {
	at, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	list, err := at.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(list.Manifests) != 1 {
		return nil, fmt.Errorf("%s holds %d images, want one", dir, len(list.Manifests))
	}
	return at.ImageIndex(list.Manifests[0].Digest)
}
