package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/invoke/secret"
	"github.com/carillon-dev/carillon/dispatcher/secretmanager"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
)

// KeysFlag holds the keys that encrypt stored secrets.
type KeysFlag struct {
	SecretKeys     string `env:"CARILLON_SECRET_KEYS" placeholder:"KEY,..." help:"Keys of stored secrets, 32 bytes in base64 each, or kms:ARN:BLOB as KMS has encrypted them. The first encrypts, all decrypt. Prefer the variable: other users of the machine can see flags."`
	SecretKeysFile string `env:"CARILLON_SECRET_KEYS_FILE" placeholder:"FILE" help:"File with these keys, one per line."`
}

// check validates the keys, as far as that is possible without KMS.
func (k KeysFlag) check() error {
	_, err := k.parse(func(key kmsKey) ([]byte, error) { // a placeholder, so that the other keys are checked
		sum := sha256.Sum256(append([]byte(key.arn), key.encrypted...))
		return sum[:], nil
	})
	return err
}

// Keys reads the keys, and lets KMS decrypt those that it has encrypted; nil without any. Errors
// never show a key. They are usage errors unless KMS is unreachable.
func (k KeysFlag) Keys(ctx context.Context) (*seal.Keys, error) {
	keys, err := k.parse(func(key kmsKey) ([]byte, error) { return decryptKMSKey(ctx, key) })
	if err != nil && !secretmanager.IsTemporary(err) {
		err = &InvalidError{err}
	}
	return keys, err
}

// parse parses the keys. It calls decrypt for those that KMS has encrypted.
func (k KeysFlag) parse(decrypt func(kmsKey) ([]byte, error)) (*seal.Keys, error) {
	if k.SecretKeys != "" && k.SecretKeysFile != "" {
		return nil, errors.New("--secret-keys (CARILLON_SECRET_KEYS) and --secret-keys-file (CARILLON_SECRET_KEYS_FILE) " +
			"exclude each other; set one")
	}
	text, from := k.SecretKeys, "--secret-keys (CARILLON_SECRET_KEYS)"
	if k.SecretKeysFile != "" {
		content, err := os.ReadFile(k.SecretKeysFile)
		if err != nil {
			return nil, fmt.Errorf("--secret-keys-file (CARILLON_SECRET_KEYS_FILE): %w", err)
		}
		text, from = string(content), "--secret-keys-file (CARILLON_SECRET_KEYS_FILE) "+input.Echo(k.SecretKeysFile)
	}
	text, err := replaceKMSKeys(text, decrypt)
	var keys *seal.Keys
	if err == nil {
		keys, err = seal.Parse(text)
	}
	if err == nil && keys == nil && k.SecretKeysFile != "" {
		err = errors.New("the file holds no key")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return keys, nil
}

// kmsPrefix begins a key that KMS has encrypted: kms:ARN:BLOB. ARN names the KMS key, BLOB is the key in base64.
const kmsPrefix = "kms:"

// kmsWait is how long a start waits for KMS.
const kmsWait = 30 * time.Second

var kmsARN = regexp.MustCompile(`^arn:aws[a-z-]*:kms:([a-z]{2,5}(?:-[a-z]+)+-[0-9]+):[0-9]{12}:(?:key|alias)/[A-Za-z0-9/_-]{1,256}$`)

// kmsKey is a key that KMS has encrypted.
type kmsKey struct {
	arn, region string
	encrypted   []byte
}

// parseKMSKey parses kms:ARN:BLOB. None of it is secret.
func parseKMSKey(text string) (kmsKey, error) {
	text = strings.TrimPrefix(text, kmsPrefix)
	at := strings.LastIndexByte(text, ':')
	key := kmsKey{arn: text[:max(at, 0)]}
	parts := kmsARN.FindStringSubmatch(key.arn)
	if parts == nil {
		return key, fmt.Errorf("%s is not kms:ARN:BLOB with the ARN of a key of KMS, as carillon secret key --kms prints it",
			input.Echo(kmsPrefix+text))
	}
	key.region = parts[1]
	var err error
	if key.encrypted, err = base64.StdEncoding.DecodeString(text[at+1:]); err != nil || len(key.encrypted) == 0 {
		return key, fmt.Errorf("the part behind %s is not an encrypted key in base64, as carillon secret key --kms prints it", key.arn)
	}
	return key, nil
}

// replaceKMSKeys replaces the keys that KMS has encrypted, in a text of keys, by keys in base64.
func replaceKMSKeys(text string, replace func(kmsKey) ([]byte, error)) (string, error) {
	var problems []error
	fields := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
	for i, field := range fields {
		if !strings.HasPrefix(field, kmsPrefix) {
			continue
		}
		key, err := parseKMSKey(field)
		if err == nil {
			var plain []byte
			plain, err = replace(key)
			fields[i] = base64.StdEncoding.EncodeToString(plain)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("key %d: %w", i+1, err))
		}
	}
	return strings.Join(fields, "\n"), errors.Join(problems...)
}

// decryptKMSKey lets KMS decrypt a key. It waits a while if KMS is unreachable.
func decryptKMSKey(ctx context.Context, key kmsKey) (plain []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, kmsWait)
	defer cancel()
	client, err := kmsClient(ctx, key.region)
	if err != nil {
		return nil, err
	}
	err = backoff.Pauses{First: 200 * time.Millisecond, Most: 5 * time.Second}.Repeat(ctx, func() error {
		plain, err = client.DecryptKey(ctx, key.arn, key.encrypted, time.Now())
		return err
	}, func(f backoff.Failure) bool { return secretmanager.IsTemporary(f.Err) })
	if err != nil {
		return nil, fmt.Errorf("decrypt with %s: %w", key.arn, err)
	}
	return plain, nil
}

func kmsClient(ctx context.Context, region string) (secretmanager.AWS, error) {
	config, err := identity.Load(ctx)
	if err != nil {
		return secretmanager.AWS{}, fmt.Errorf("load the AWS configuration: %w", err)
	}
	return secretmanager.NewAWS(config, region), nil
}

// NewKMSKey lets KMS create a key and returns it encrypted, as kms:ARN:BLOB. The plain key is never shown.
func NewKMSKey(ctx context.Context, arn string) (string, error) {
	parts := kmsARN.FindStringSubmatch(arn)
	if parts == nil {
		return "", &InvalidError{fmt.Errorf("--kms %s is not the ARN of a key of KMS, such as "+
			"arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab", input.Echo(arn))}
	}
	client, err := kmsClient(ctx, parts[1])
	if err != nil {
		return "", err
	}
	encrypted, err := client.CreateKey(ctx, arn, time.Now())
	if err != nil {
		return "", fmt.Errorf("create a key with --kms %s: %w", arn, err)
	}
	return kmsPrefix + arn + ":" + base64.StdEncoding.EncodeToString(encrypted), nil
}

// secretDirFlag is the directory of the files that jobs refer to.
type secretDirFlag struct {
	SecretDir string `env:"CARILLON_SECRET_DIR" default:"/etc/carillon/secrets" placeholder:"DIR" help:"Directory of the secret files that jobs refer to as file:PATH, by default those of app A as file:A/PATH. It must hold nothing of the node's own."`
}

// ownFile is a file of the node itself, and the flag or variable that names it.
type ownFile struct{ name, path string }

// mostSecretFiles bounds how many files the check compares with the node's own.
const mostSecretFiles = 10_000

// platformTokens are file names that platforms use for tokens of the node.
var platformTokens = []string{"kubernetes.io", "eks.amazonaws.com", "azure-identity-token"}

// check refuses a directory in which jobs could read the node's own files.
func (f secretDirFlag) check(own []ownFile) error {
	dir := realPath(f.SecretDir)
	refuse := func(what string) error {
		return fmt.Errorf("--secret-dir (CARILLON_SECRET_DIR) %s holds %s, which jobs could use; give jobs a directory of their own, "+
			"such as /etc/carillon/secrets", input.Echo(f.SecretDir), what)
	}
	for _, name := range platformTokens {
		if slices.Contains(strings.Split(dir, string(filepath.Separator)), name) {
			return refuse("tokens of the node (" + name + ")")
		}
	}
	for _, file := range own {
		if below(dir, realPath(file.path)) || below(absolute(f.SecretDir), absolute(file.path)) {
			return refuse(file.name)
		}
	}
	return searchOwn(dir, own, refuse)
}

// searchOwn finds tokens of platforms, and other links to the node's own files.
func searchOwn(dir string, own []ownFile, refuse func(what string) error) error {
	known := map[string]fs.FileInfo{}
	for _, file := range own {
		if info, err := os.Stat(file.path); err == nil {
			known[file.name] = info
		}
	}
	seen := 0
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // jobs cannot read it either
		}
		if seen++; seen > mostSecretFiles {
			return fs.SkipAll
		}
		if slices.Contains(platformTokens, entry.Name()) {
			return refuse("tokens of the node (" + entry.Name() + ")")
		}
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() {
			return nil //nolint:nilerr // already removed
		}
		for name, file := range known {
			if os.SameFile(file, info) {
				return refuse(name)
			}
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it may be created later
	}
	return err
}

// ownFiles returns the files of the node that no job may use.
func (s Flags) ownFiles() []ownFile {
	path, _ := envFilePath()
	all := []ownFile{
		{"--tls-key", s.TLSKey}, {"--tls-cert", s.TLSCert}, {"--secret-keys-file", s.SecretKeysFile},
		{"--vault-token-file", s.VaultTokenFile}, {"--oidc-client-secret-file", s.OIDCClientSecretFile},
		{"--database-password-file", s.DatabasePasswordFile}, {"the settings in " + path, path},
	}
	for _, database := range []string{s.Database, s.NotifyDatabase} {
		address, query, _ := strings.Cut(database, "?")
		if file, ok := strings.CutPrefix(address, "sqlite:"); ok {
			all = append(all, ownFile{"the database", file})
		}
		parameters, _ := url.ParseQuery(query) // the check of the URL reports errors
		for _, parameter := range []string{"passfile", "sslkey", "sslcert"} {
			all = append(all, ownFile{parameter + " of the database", parameters.Get(parameter)})
		}
	}
	for _, variable := range []string{
		"PGPASSFILE", "PGSSLKEY", "PGSSLCERT", "PGSERVICEFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SHARED_CREDENTIALS_FILE",
		"AWS_CONFIG_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
	} {
		all = append(all, ownFile{"the file that " + variable + " names", os.Getenv(variable)})
	}
	if home, err := os.UserHomeDir(); err == nil {
		all = append(all, ownFile{"~/.pgpass", filepath.Join(home, ".pgpass")}, ownFile{"~/.aws", filepath.Join(home, ".aws", "credentials")})
	}
	return slices.DeleteFunc(all, func(file ownFile) bool {
		_, err := os.Stat(file.path)
		return file.path == "" || err != nil
	})
}

// realPath resolves the links of a path, as far as it exists.
func realPath(path string) string {
	if found, err := filepath.EvalSymlinks(path); err == nil {
		path = found
	}
	return absolute(path)
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// below reports whether a file is in a directory, at any depth.
func below(dir, file string) bool {
	between, err := filepath.Rel(dir, file)
	return err == nil && filepath.IsLocal(between)
}

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
