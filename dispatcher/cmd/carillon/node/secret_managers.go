package node

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/invoke/secret"
	"github.com/carillon-dev/carillon/dispatcher/secretmanager"
)

// managerFlags configure how a node reads secrets from secret managers.
type managerFlags struct {
	SecretLifetime input.Duration `env:"CARILLON_SECRET_LIFETIME" default:"60s" help:"How long a secret of a manager (awssm:, ssm:, vault:) is used until it is read again, 1s to 1h."`
	SecretKeep     input.Duration `env:"CARILLON_SECRET_KEEP" default:"15m" help:"How long, since it was read, a secret is used while its manager is unreachable or throttles, 0s to 24h. 0s: not at all."`
	SecretAWSRole  string         `env:"CARILLON_SECRET_AWS_ROLE" placeholder:"ARN" help:"Role that is assumed to read awssm: and ssm: secrets of an app, with the app's external id and tag. {app} stands for the name of the app. Default: the node's own identity."`
}

var iamRole = regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,576}$`)

func (f managerFlags) check() error {
	var problems []error
	if f.SecretLifetime.Std() < time.Second || f.SecretLifetime.Std() > time.Hour {
		problems = append(problems, fmt.Errorf("--secret-lifetime: %s is not between 1s and 1h", f.SecretLifetime))
	}
	if f.SecretKeep < 0 || f.SecretKeep.Std() > 24*time.Hour {
		problems = append(problems, fmt.Errorf("--secret-keep: %s is not between 0s and 24h", f.SecretKeep))
	}
	if role := strings.ReplaceAll(f.SecretAWSRole, secret.AppPlaceholder, "app"); role != "" && !iamRole.MatchString(role) {
		problems = append(problems, fmt.Errorf("--secret-aws-role (CARILLON_SECRET_AWS_ROLE): %s is not the ARN of a role, such as "+
			"arn:aws:iam::123456789012:role/carillon-{app}", input.Echo(f.SecretAWSRole)))
	}
	return errors.Join(problems...)
}

// vaultFlags are the address of Vault and the node's login.
type vaultFlags struct {
	VaultAddress   string `env:"CARILLON_VAULT_ADDRESS" placeholder:"URL" help:"HashiCorp Vault, for vault: secrets, such as https://vault:8200."`
	VaultCA        string `env:"CARILLON_VAULT_CA" placeholder:"FILE" help:"Authorities of Vault's certificate: a file in PEM, or base64: and what would be in it, in base64. Default: those of the machine."`
	VaultNamespace string `env:"CARILLON_VAULT_NAMESPACE" placeholder:"NAME" help:"Namespace of Vault Enterprise."`
	VaultAuth      string `env:"CARILLON_VAULT_AUTH" enum:"token,kubernetes,aws" default:"token" placeholder:"token|kubernetes|aws" help:"How the node logs in: with a token, as its service account of Kubernetes, or with its AWS identity (IAM)."`
	VaultMount     string `env:"CARILLON_VAULT_MOUNT" placeholder:"PATH" help:"Where the auth method is mounted. Default: kubernetes or aws."`
	VaultRole      string `env:"CARILLON_VAULT_ROLE" placeholder:"NAME" help:"Role to log in with. {app} stands for the name of the app. Required for kubernetes and aws."`
	VaultToken     string `env:"CARILLON_VAULT_TOKEN" placeholder:"TOKEN" help:"Token of the node. Prefer the variable or a file: other users of the machine can see flags."`
	VaultTokenFile string `env:"CARILLON_VAULT_TOKEN_FILE" placeholder:"FILE" help:"File with the token, or with that of the service account. Default for kubernetes: where Kubernetes puts it."`
	VaultServerID  string `env:"CARILLON_VAULT_SERVER_ID" placeholder:"TEXT" help:"Value of X-Vault-AWS-IAM-Server-ID that Vault demands of logins with AWS."`
}

// serviceAccountToken is the path of a pod's token in Kubernetes.
const serviceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path

// inlinePrefix begins inline certificates, for platforms such as ECS that provide no files.
const inlinePrefix = "base64:"

var vaultMount = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)

func (f vaultFlags) check() error {
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if f.VaultAddress == "" {
		for _, flag := range []struct{ name, value string }{
			{"--vault-ca", f.VaultCA}, {"--vault-namespace", f.VaultNamespace}, {"--vault-mount", f.VaultMount}, {"--vault-role", f.VaultRole},
			{"--vault-token", f.VaultToken}, {"--vault-token-file", f.VaultTokenFile}, {"--vault-server-id", f.VaultServerID},
		} {
			if flag.value != "" {
				wrong("%s needs --vault-address", flag.name)
			}
		}
		return errors.Join(problems...)
	}
	if serverURL(f.VaultAddress) == nil {
		wrong("--vault-address (CARILLON_VAULT_ADDRESS): it is not a URL such as https://vault:8200, without user and query " +
			"(not shown: it may hold a password)")
	}
	if f.VaultMount != "" && !vaultMount.MatchString(f.VaultMount) {
		wrong("--vault-mount (CARILLON_VAULT_MOUNT): %s is not a path such as kubernetes", input.Echo(f.VaultMount))
	}
	byToken := f.VaultAuth == "token"
	if byToken && (f.VaultToken == "") == (f.VaultTokenFile == "") {
		wrong("--vault-auth=token needs --vault-token (CARILLON_VAULT_TOKEN) or --vault-token-file, and not both")
	}
	if byToken && f.VaultRole != "" {
		wrong("--vault-role is for --vault-auth=kubernetes and aws: a token has its policies already")
	}
	if !byToken && f.VaultRole == "" {
		wrong("--vault-auth=%s needs --vault-role", f.VaultAuth)
	}
	if !byToken && f.VaultToken != "" {
		wrong("--vault-token is for --vault-auth=token")
	}
	if _, err := f.authorities(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// serverURL parses the URL of a server, without user and query; nil if it is invalid.
func serverURL(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery+u.Fragment != "" {
		return nil
	}
	return u
}

// authorities returns the authorities of Vault's certificate; nil means those of the machine.
func (f vaultFlags) authorities() (*x509.CertPool, error) {
	if f.VaultCA == "" {
		return nil, nil
	}
	read := os.ReadFile
	value, inline := strings.CutPrefix(f.VaultCA, inlinePrefix)
	if inline {
		read = base64.StdEncoding.DecodeString
	}
	text, err := read(value)
	if err != nil {
		return nil, fmt.Errorf("--vault-ca (CARILLON_VAULT_CA): %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--vault-ca (CARILLON_VAULT_CA): %s holds no certificate in PEM", input.Echo(f.VaultCA))
	}
	return pool, nil
}

// vault returns a client of Vault; nil without an address.
func (f vaultFlags) vault() (*secretmanager.Vault, error) {
	if f.VaultAddress == "" {
		return nil, nil
	}
	authorities, err := f.authorities()
	if err != nil {
		return nil, err
	}
	var login secretmanager.VaultLogin
	switch f.VaultAuth {
	case "kubernetes":
		login = secretmanager.VaultKubernetes{
			Mount: cmp.Or(f.VaultMount, "kubernetes"), File: cmp.Or(f.VaultTokenFile, serviceAccountToken),
		}
	case "aws":
		login = secretmanager.VaultAWS{Mount: cmp.Or(f.VaultMount, "aws"), ServerID: f.VaultServerID, Config: identity.Load}
	default:
		login = secretmanager.VaultToken{Token: f.VaultToken, File: f.VaultTokenFile}
	}
	return secretmanager.NewVault(secretmanager.VaultOptions{
		Address: f.VaultAddress, Namespace: f.VaultNamespace, Login: login,
		Client: &http.Client{
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
				TLSClientConfig:   &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12},
				ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}), nil
}

func (s Flags) managers() (secret.Managers, error) {
	vault, err := s.vault()
	return secret.Managers{
		Lifetime: s.SecretLifetime.Std(), Keep: s.SecretKeep.Std(), AWSRole: s.SecretAWSRole, Vault: vault, VaultRole: s.VaultRole,
	}, err
}
