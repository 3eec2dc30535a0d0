// Package k8s tests the manifests in examples/kubernetes: they decode strictly into the types of
// Kubernetes, follow the rules below, and configure the node in a way that the program accepts.
package k8s
