// Package k8s holds the tests of the manifests in examples/kubernetes: they decode strictly into the types of
// Kubernetes, keep the rules below, and configure the node as the program itself accepts it.
package k8s
