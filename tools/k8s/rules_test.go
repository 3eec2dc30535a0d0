package k8s_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A rule returns the problem of the manifests, or "".
type rule func(*manifests) string

var digest = regexp.MustCompile(`^ghcr\.io/carillon-dev/carillon@sha256:[0-9a-f]{64}$`)

// rules returns the promises of the folder, each with a change that breaks it and no other.
func rules() map[string]struct {
	check rule
	spoil func(*manifests)
} {
	type row = struct {
		check rule
		spoil func(*manifests)
	}
	return map[string]row{
		"images are named by digest": {eachContainer(func(_ corev1.PodSpec, c corev1.Container) string {
			return unless(digest.MatchString(c.Image), c.Image)
		}), func(m *manifests) { node(m).Image = "ghcr.io/carillon-dev/carillon:latest" }},
		"nodes and migration have the same image": {func(m *manifests) string {
			return unless(node(m).Image == m.migrate.Spec.Template.Spec.Containers[0].Image, "they differ")
		}, func(m *manifests) { node(m).Image = strings.Replace(node(m).Image, "00", "01", 1) }},
		"nobody is root": {eachContainer(func(p corev1.PodSpec, _ corev1.Container) string {
			s := p.SecurityContext
			return unless(s != nil && is(s.RunAsNonRoot, true) && is(s.RunAsUser, 65532) && is(s.RunAsGroup, 65532), "user")
		}), func(m *manifests) { *m.deployment.Spec.Template.Spec.SecurityContext.RunAsUser = 0 }},
		"the root is read-only": {eachContainer(func(_ corev1.PodSpec, c corev1.Container) string {
			return unless(is(c.SecurityContext.ReadOnlyRootFilesystem, true), c.Name)
		}), func(m *manifests) { node(m).SecurityContext.ReadOnlyRootFilesystem = nil }},
		"no capability is left": {eachContainer(func(_ corev1.PodSpec, c corev1.Container) string {
			s := c.SecurityContext
			return unless(slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) && s.Capabilities.Add == nil &&
				is(s.AllowPrivilegeEscalation, false) && s.Privileged == nil, c.Name)
		}), func(m *manifests) { node(m).SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"} }},
		"system calls are filtered": {eachContainer(func(p corev1.PodSpec, _ corev1.Container) string {
			s := p.SecurityContext.SeccompProfile
			return unless(s != nil && s.Type == corev1.SeccompProfileTypeRuntimeDefault, "seccompProfile")
		}), func(m *manifests) { m.migrate.Spec.Template.Spec.SecurityContext.SeccompProfile = nil }},
		"pods have no token of Kubernetes": {eachContainer(func(p corev1.PodSpec, _ corev1.Container) string {
			return unless(is(p.AutomountServiceAccountToken, false) && p.ServiceAccountName == "carillon", p.ServiceAccountName)
		}), func(m *manifests) { m.migrate.Spec.Template.Spec.AutomountServiceAccountToken = nil }},
		"Kubernetes adds no CARILLON_ variables": {eachContainer(func(p corev1.PodSpec, _ corev1.Container) string {
			return unless(is(p.EnableServiceLinks, false), "enableServiceLinks")
		}), func(m *manifests) { m.deployment.Spec.Template.Spec.EnableServiceLinks = nil }},
		"memory is limited, the processor is not": {eachContainer(func(_ corev1.PodSpec, c corev1.Container) string {
			_, cpu := c.Resources.Limits[corev1.ResourceCPU]
			return unless(!c.Resources.Limits.Memory().IsZero() && !c.Resources.Requests.Cpu().IsZero() && !cpu, c.Name)
		}), func(m *manifests) { delete(node(m).Resources.Limits, corev1.ResourceMemory) }},
		"no secret is written down": {eachContainer(func(_ corev1.PodSpec, c corev1.Container) string {
			for _, e := range c.Env {
				if e.Value != "" {
					return e.Name
				}
			}
			return ""
		}), func(m *manifests) { node(m).Env[1].Value = "hunter2" }},
		"the database's URL has no password": {func(m *manifests) string {
			user, _, _ := strings.Cut(m.config.Data["CARILLON_DATABASE"], "@")
			return unless(strings.Count(user, ":") == 1, user)
		}, func(m *manifests) { m.config.Data["CARILLON_DATABASE"] = "postgres://carillon:hunter2@db/carillon" }},
		"a node has the time to drain": {timings, func(m *manifests) {
			*m.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds = 60
		}},
		"Kubernetes kills when the node was told": {stopTimeout, func(m *manifests) { m.config.Data["CARILLON_STOP_TIMEOUT"] = "120s" }},
		"there are two nodes at least": {func(m *manifests) string {
			return unless(*m.deployment.Spec.Replicas >= 2, fmt.Sprint(*m.deployment.Spec.Replicas))
		}, func(m *manifests) { *m.deployment.Spec.Replicas = 1 }},
		"new nodes start before old ones stop": {func(m *manifests) string {
			u := m.deployment.Spec.Strategy.RollingUpdate
			return unless(*u.MaxUnavailable == intstr.FromInt32(0) && u.MaxSurge.IntVal > 0, u.String())
		}, func(m *manifests) { *m.deployment.Spec.Strategy.RollingUpdate.MaxUnavailable = intstr.FromInt32(1) }},
		"nodes are spread over zones and machines": {func(m *manifests) string {
			var keys []string
			for _, c := range m.deployment.Spec.Template.Spec.TopologySpreadConstraints {
				if c.MaxSkew == 1 && matches(c.LabelSelector.MatchLabels, m) {
					keys = append(keys, c.TopologyKey)
				}
			}
			return unless(slices.Equal(keys, []string{"topology.kubernetes.io/zone", "kubernetes.io/hostname"}), fmt.Sprint(keys))
		}, func(m *manifests) { m.deployment.Spec.Template.Spec.TopologySpreadConstraints[0].MaxSkew = 2 }},
		"selectors match the nodes": {func(m *manifests) string {
			return unless(matches(m.deployment.Spec.Selector.MatchLabels, m) && matches(m.service.Spec.Selector, m) &&
				matches(m.budget.Spec.Selector.MatchLabels, m), "a selector")
		}, func(m *manifests) { m.service.Spec.Selector["app.kubernetes.io/name"] = "carillon-node" }},
		"selectors do not match the migration": {func(m *manifests) string {
			labels := m.migrate.Spec.Template.Labels["app.kubernetes.io/name"]
			return unless(labels != m.service.Spec.Selector["app.kubernetes.io/name"], labels)
		}, func(m *manifests) { m.migrate.Spec.Template.Labels = m.deployment.Spec.Template.Labels }},
		"only the API is let in": {func(m *manifests) string {
			n := m.network.Spec
			ok := n.PodSelector.Size() == 0 && len(n.PolicyTypes) == 1 && len(n.Ingress) == 1 && len(n.Ingress[0].From) == 1 &&
				len(n.Ingress[0].From[0].NamespaceSelector.MatchLabels) == 1 && len(n.Ingress[0].Ports) == 1 &&
				n.Ingress[0].Ports[0].Port.IntVal == node(m).Ports[0].ContainerPort
			return unless(ok, n.String())
		}, func(m *manifests) { m.network.Spec.Ingress[0].From = nil }},
		"liveness does not depend on the database": {func(m *manifests) string {
			return unless(node(m).LivenessProbe.HTTPGet.Path == "/livez" && node(m).ReadinessProbe.HTTPGet.Path == "/readyz", "paths")
		}, func(m *manifests) { node(m).LivenessProbe.HTTPGet.Path = "/readyz" }},
		"all is in one namespace": {func(m *manifests) string {
			var others []string
			for _, n := range []string{m.account.Namespace, m.config.Namespace, m.migrate.Namespace, m.deployment.Namespace,
				m.service.Namespace, m.budget.Namespace, m.network.Namespace} {
				if n != m.namespace.Name {
					others = append(others, n)
				}
			}
			return strings.Join(others, ",")
		}, func(m *manifests) { m.config.Namespace = "default" }},
		"the namespace enforces restricted pods": {func(m *manifests) string {
			return unless(m.namespace.Labels["pod-security.kubernetes.io/enforce"] == "restricted", "label")
		}, func(m *manifests) { m.namespace.Labels = nil }},
	}
}

func TestManifestsKeepTheRules(t *testing.T) {
	t.Parallel()
	m := load(t)
	for name, r := range rules() {
		if wrong := r.check(m); wrong != "" {
			t.Errorf("%s: not so: %s", name, wrong)
		}
	}
}

func TestEachRuleDetectsItsBreach(t *testing.T) {
	t.Parallel()
	for name, r := range rules() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := load(t)
			r.spoil(m)
			if r.check(m) == "" {
				t.Error("the rule did not notice")
			}
		})
	}
}

// eachContainer applies a check to nodes and migration.
func eachContainer(check func(corev1.PodSpec, corev1.Container) string) rule {
	return func(m *manifests) string {
		var wrong []string
		for _, pod := range []corev1.PodSpec{m.deployment.Spec.Template.Spec, m.migrate.Spec.Template.Spec} {
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				if w := check(pod, c); w != "" {
					wrong = append(wrong, w)
				}
			}
		}
		return strings.Join(wrong, ", ")
	}
}

// timings: Kubernetes waits for the drain plus ten seconds.
func timings(m *manifests) string {
	drain, err := time.ParseDuration(m.config.Data["CARILLON_DRAIN_TIMEOUT"])
	grace := grace(m)
	return unless(err == nil && drain+10*time.Second == grace, fmt.Sprintf("drain %s, grace period %s", drain, grace))
}

// stopTimeout: the stop timeout of the node equals the time that Kubernetes leaves it after preStop.
func stopTimeout(m *manifests) string {
	stop, err := time.ParseDuration(m.config.Data["CARILLON_STOP_TIMEOUT"])
	left := grace(m) - time.Duration(node(m).Lifecycle.PreStop.Sleep.Seconds)*time.Second
	return unless(err == nil && stop == left, fmt.Sprintf("CARILLON_STOP_TIMEOUT %s, left after preStop %s", stop, left))
}

func grace(m *manifests) time.Duration {
	return time.Duration(*m.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
}

func node(m *manifests) *corev1.Container { return &m.deployment.Spec.Template.Spec.Containers[0] }

// matches reports whether a selector matches the nodes.
func matches(selector map[string]string, m *manifests) bool {
	for key, value := range selector {
		if m.deployment.Spec.Template.Labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

func is[T comparable](p *T, want T) bool { return p != nil && *p == want }

func unless(ok bool, wrong string) string {
	if ok {
		return ""
	}
	return wrong
}
