// Package release tests what a release holds, as its users get it: archives, sums, bills of materials, the
// provider and the image. tools/release builds them here for one platform.
package release
