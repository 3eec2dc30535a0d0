package k8s_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const folder = "../../examples/kubernetes"

// manifests are the objects of the folder.
type manifests struct {
	namespace  corev1.Namespace
	account    corev1.ServiceAccount
	config     corev1.ConfigMap
	migrate    batchv1.Job
	deployment appsv1.Deployment
	service    corev1.Service
	budget     policyv1.PodDisruptionBudget
	network    networkingv1.NetworkPolicy
}

// objects returns the files and the object that each must decode into.
func (m *manifests) objects() map[string]any {
	return map[string]any{
		"namespace.yaml": &m.namespace, "serviceaccount.yaml": &m.account, "configmap.yaml": &m.config,
		"migrate-job.yaml": &m.migrate, "deployment.yaml": &m.deployment, "service.yaml": &m.service,
		"poddisruptionbudget.yaml": &m.budget, "networkpolicy.yaml": &m.network,
	}
}

// kinds returns the kind that each file must state; a decoder ignores it.
func kinds() map[string]string {
	return map[string]string{
		"namespace.yaml": "v1/Namespace", "serviceaccount.yaml": "v1/ServiceAccount", "configmap.yaml": "v1/ConfigMap",
		"migrate-job.yaml": "batch/v1/Job", "deployment.yaml": "apps/v1/Deployment", "service.yaml": "v1/Service",
		"poddisruptionbudget.yaml": "policy/v1/PodDisruptionBudget",
		"networkpolicy.yaml":       "networking.k8s.io/v1/NetworkPolicy",
		"kustomization.yaml":       "kustomize.config.k8s.io/v1beta1/Kustomization",
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// decode refuses fields that Kubernetes would silently drop: an unknown field, one in the wrong
// case, or a duplicate.
func decode(text []byte, object any) error {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	problems, err := json.UnmarshalStrict(data, object)
	return errors.Join(append(problems, err)...)
}

// load decodes the folder.
func load(t *testing.T) *manifests {
	t.Helper()
	var m manifests
	for file, object := range m.objects() {
		if err := decode(read(t, file), object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return &m
}

func TestManifestsDecodeStrictlyAndAllAreKnown(t *testing.T) {
	t.Parallel()
	load(t)
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		var said struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(read(t, filepath.Base(path)), &said); err != nil {
			t.Fatal(err)
		}
		if got, want := said.APIVersion+"/"+said.Kind, kinds()[filepath.Base(path)]; got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	if got, want := len(files), len(kinds()); got != want {
		t.Errorf("%d files, want %d", got, want)
	}
}

func TestUnknownFieldIsNoticed(t *testing.T) {
	t.Parallel()
	text := bytes.Replace(read(t, "deployment.yaml"), []byte("readOnlyRootFilesystem"), []byte("readOnlyRootFileSystem"), 1)
	var d appsv1.Deployment
	if err := decode(text, &d); err == nil || !strings.Contains(err.Error(), "readOnlyRootFileSystem") {
		t.Errorf("got %v, want an error that names the field", err)
	}
}

func TestKustomizationNamesEachFileButTheMigration(t *testing.T) {
	t.Parallel()
	var k struct {
		APIVersion, Kind string
		Resources        []string
	}
	if err := yaml.UnmarshalStrict(read(t, "kustomization.yaml"), &k); err != nil {
		t.Fatal(err)
	}
	var want []string
	for file := range (&manifests{}).objects() {
		if file != "migrate-job.yaml" {
			want = append(want, file)
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(k.Resources)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
