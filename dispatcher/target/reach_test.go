package target_test

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// unreachable returns the problems of a target on some nodes as texts: pointer, code and message.
func unreachable(t target.Target, networks []string, nodes ...target.Reach) string {
	u := target.Unreachable{Nodes: nodes, Bounds: target.EgressBounds{Networks: networks}}
	u.Target("/target", t)
	var all []string
	for _, p := range u.Problems {
		all = append(all, p.Path+" "+p.Code+" "+p.Message)
	}
	return strings.Join(all, "\n")
}

func TestAddressesThatNoNodeOpensAreFound(t *testing.T) {
	t.Parallel()
	office := target.Reach{EgressPrivate: []string{"192.168.0.0/16"}}
	local := target.Reach{EgressLoopback: true}
	for name, tt := range map[string]struct {
		url      string
		networks []string // of the bounds
		nodes    []target.Reach
		want     string
	}{
		"a name":           {"https://example.com/", nil, []target.Reach{{}}, ""},
		"a public address": {"https://1.1.1.1/", nil, []target.Reach{{}}, ""},
		"private, and none opens any": {"http://10.0.0.5/x", nil, []target.Reach{{}},
			"opens the private network of 10.0.0.5; start nodes with --egress-private 10.0.0.5/32"},
		"private, and others are open":   {"http://10.0.0.5/x", nil, []target.Reach{{}, office}, "--egress-private 10.0.0.5/32"},
		"private, and one node opens it": {"http://192.168.3.4:80/", nil, []target.Reach{{}, office}, ""},
		"private in IPv6":                {"http://[fd12::1]/", nil, []target.Reach{office}, "--egress-private fd12::1/128"},
		"private as IPv4 in IPv6":        {"http://[::ffff:10.0.0.5]/", nil, []target.Reach{{}}, "--egress-private 10.0.0.5/32"},
		"private, and the bounds list it": {
			"http://10.0.0.5/", []string{"public", "10.0.0.0/24"}, []target.Reach{{}}, ""},
		"private, and the bounds list others": {
			"http://192.168.3.4/", []string{"public"}, []target.Reach{office}, "the bounds of the app allow public (egress.networks)"},
		"private, and the bounds list none": {"http://192.168.3.4/", []string{}, []target.Reach{office}, "the bounds of the app allow none"},
		"loopback":                          {"http://127.0.0.1:80/", nil, []target.Reach{office}, "start nodes with --egress-loopback"},
		"loopback by name":                  {"http://LocalHost:80/", nil, []target.Reach{office}, "localhost is the node itself"},
		"loopback that a node opens":        {"http://localhost/", nil, []target.Reach{office, local}, ""},
	} {
		got := unreachable(target.Target{Webhook: &target.Webhook{URL: tt.url}}, tt.networks, tt.nodes...)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) ||
			got != "" && !strings.HasPrefix(got, "/target/webhook/url node_egress ") {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func TestSecretsAndFunctionsThatNoNodeCanFindAreFound(t *testing.T) {
	t.Parallel()
	webhook := func(reference string) target.Target {
		return target.Target{Webhook: &target.Webhook{URL: "https://example.com/",
			Auth: &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Reference: reference}}}}}
	}
	const at = "/target/webhook/auth/bearer/token/reference node_identity no live node has "
	here := target.Reach{AWSRegion: "eu-west-1", VaultAddress: "https://vault:8200"}
	for name, tt := range map[string]struct {
		target target.Target
		want   string
	}{
		"a variable":             {webhook("env:SECRET_X"), ""},
		"Secrets Manager":        {webhook("awssm:x"), at + "an AWS region"},
		"Secrets Manager by ARN": {webhook("awssm:arn:aws:secretsmanager:eu-west-1:123456789012:secret:x"), ""},
		"Parameter Store":        {webhook("ssm:x"), at + "an AWS region"},
		"Vault":                  {webhook("vault:kv/x#k"), at + "the address of Vault"},
		"a function without a region": {target.Target{Lambda: &target.Lambda{Function: "f"}},
			"/target/lambda/function node_identity no live node has an AWS region"},
		"a function of a region": {target.Target{Lambda: &target.Lambda{Function: "f", Region: "eu-west-1"}}, ""},
		"the token of an OAuth2 server": {target.Target{Webhook: &target.Webhook{URL: "https://example.com/",
			Auth: &target.Auth{OAuth2: &target.OAuth2Auth{TokenURL: "http://10.0.0.1/"}}}}, "/target/webhook/auth/oauth2/token_url node_egress "},
	} {
		if got := unreachable(tt.target, nil, target.Reach{}); (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		if got := unreachable(tt.target, []string{"10.0.0.0/8", target.NetworkPublic}, target.Reach{}, here); got != "" {
			t.Errorf("%s: got %q, although a node has all", name, got)
		}
	}
}
