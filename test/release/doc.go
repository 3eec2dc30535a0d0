// Package release tests the artifacts of a release as its users get them: archives, sums, bills of
// materials, the provider and the image. tools/release builds them here for one platform.
package release
