package platform_test

import (
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/platform"
)

// The environment of this test is set for a node in eu-west-1.
func TestRDSTokenIsForTheRegionInTheNameOfTheServer(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-1",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	var tokens platform.RDSTokens
	for host, want := range map[string]string{
		"db.cabc123.us-gov-west-1.rds.amazonaws.com":            "us-gov-west-1",
		"fleet.cluster-cabc.ap-southeast-2.rds.amazonaws.com":   "ap-southeast-2",
		"fleet.cluster-ro-cabc.eu-central-1.rds.amazonaws.com.": "eu-central-1",
		"p.proxy-cabc.us-east-1.rds.amazonaws.com":              "us-east-1",
		"db.cabc.rds.cn-north-1.amazonaws.com.cn":               "cn-north-1",
		"db.cabc.cn-northwest-1.rds.amazonaws.com.cn":           "cn-northwest-1",
		"fleet.global-cabc.global.rds.amazonaws.com":            "eu-west-1",
		"db.example.com": "eu-west-1",
		"::1":            "eu-west-1",
	} {
		token, err := tokens.Token(t.Context(), host, 6432, "fleet")
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse("https://" + token)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Split(u.Query().Get("X-Amz-Credential"), "/"); len(got) != 5 || got[2] != want {
			t.Errorf("%s: credential %q, want region %s", host, got, want)
		}
		if u.Hostname() != host || u.Port() != "6432" || u.Query().Get("DBUser") != "fleet" {
			t.Errorf("%s: the token is for %s at %s", host, u.Query().Get("DBUser"), u.Host)
		}
	}
}

// The shared files may appear after the node has started.
func TestRDSTokenIsMadeOnceThereAreCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_REGION": "eu-west-1", "AWS_PROFILE": "fleet",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": file, "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	var tokens platform.RDSTokens
	if _, err := tokens.Token(t.Context(), "h", 5432, "u"); err == nil || !strings.HasPrefix(err.Error(), "rds-iam: ") {
		t.Errorf("without credentials: got error %v, want one of rds-iam", err)
	}
	const profile = "[fleet]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = secret\n"
	if err := os.WriteFile(file, []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Token(t.Context(), "h", 5432, "u"); err != nil {
		t.Errorf("with credentials: %v", err)
	}
}

func TestRDSRootsAreReadableAndLast(t *testing.T) {
	t.Parallel()
	rest, err := os.ReadFile("rds_roots.pem")
	if err != nil {
		t.Fatal(err)
	}
	pool, count := platform.RDSRoots(), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		count++
		root, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		name := root.Subject.CommonName
		if _, err := root.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			t.Errorf("%s is not trusted: %v", name, err)
		}
		if !strings.HasPrefix(name, "Amazon R") || !root.IsCA ||
			time.Until(root.NotAfter) < 2*365*24*time.Hour { // wall clock: a root that expires soon must be replaced
			t.Errorf("%s, CA %v, until %s, want a root of Amazon that lasts; run tools/rds_roots.sh", name, root.IsCA, root.NotAfter)
		}
	}
	if count < 85 {
		t.Errorf("%d roots, want 85 or more", count)
	}
}
