package secret

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/secretmanager"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Managers is how a node reads secrets from their managers. The zero value reads AWS with the node's own identity.
type Managers struct {
	// Lifetime is how long a secret of a manager is used until it is read again; default 1m.
	Lifetime time.Duration
	// Keep is how long after its last read a secret of a manager is used while its manager is unreachable or throttles;
	// 0 means not at all.
	Keep time.Duration
	// AWSRole is the ARN of the role that is assumed to read secrets of an app in AWS, with AppPlaceholder for its
	// name. Empty: the node's own identity reads them.
	AWSRole string
	// Vault reads secrets of Vault; nil: the node has none.
	Vault *secretmanager.Vault
	// VaultRole is the role with which the node logs in to Vault, with AppPlaceholder for the name of the app.
	VaultRole string
}

// Defaults of Managers.
const (
	defaultLifetime = time.Minute
	DefaultKeep     = 15 * time.Minute
)

// AppPlaceholder stands for the name of an app in the roles of Managers.
const AppPlaceholder = "{app}"

// mostRoles bounds the roles that are kept.
const mostRoles = 1000

// managers reads secrets from their managers, with the identity of an app.
type managers struct {
	Managers
	node *identity.Node

	mu    sync.Mutex
	roles map[identity.Role]aws.CredentialsProvider
}

func newManagers(o Managers, node *identity.Node) *managers {
	return &managers{Managers: o, node: node, roles: map[identity.Role]aws.CredentialsProvider{}}
}

// read reads a secret. Its key is that of the whole secret.
func (m *managers) read(ctx context.Context, key documentKey, now time.Time) (string, error) {
	if key.Source == target.SecretVault {
		if m.Vault == nil {
			return "", &secretmanager.Error{Kind: secretmanager.NotAsked, Manager: "Vault",
				Code: "this node has no address of Vault; start it with --vault-address"}
		}
		return m.Vault.Secret(ctx, roleOf(m.VaultRole, key.app), key.Name, key.Version, now)
	}
	config, err := m.config(ctx, key)
	if err != nil {
		return "", err
	}
	client := secretmanager.NewAWS(config, key.Region())
	if key.Source == target.SecretParameterStore {
		return client.Parameter(ctx, key.Name, key.Version, now)
	}
	return client.Secret(ctx, key.Name, key.Version, now)
}

func roleOf(template, app string) string { return strings.ReplaceAll(template, AppPlaceholder, app) }

// config returns the AWS configuration with the identity of an app: a session of the role that carries its name, its
// external id and its tag, as for functions. It belongs to no job, because all jobs of the app share the secrets.
func (m *managers) config(ctx context.Context, key documentKey) (aws.Config, error) {
	config, err := m.node.Config(ctx)
	if err != nil {
		return config, &secretmanager.Error{Kind: secretmanager.Unreachable, Manager: "AWS", Code: "the node's configuration cannot be loaded"}
	}
	if m.AWSRole == "" {
		return config, nil
	}
	if key.externalID == "" {
		return config, &secretmanager.Error{Kind: secretmanager.NotAsked, Manager: "AWS",
			Code: fmt.Sprintf("app %s has no external id, so no role is assumed for it", key.app)}
	}
	of := identity.Role{ARN: roleOf(m.AWSRole, key.app), App: key.app, ExternalID: key.externalID}
	config.Region = cmp.Or(config.Region, key.Region()) // of STS
	m.mu.Lock()
	defer m.mu.Unlock()
	credentials, ok := m.roles[of]
	if !ok {
		if len(m.roles) >= mostRoles {
			clear(m.roles) // they are assumed again
		}
		credentials = aws.NewCredentialsCache(identity.Assume(config, of, map[string]string{target.SessionTagApp: key.app}))
		m.roles[of] = credentials
	}
	config.Credentials = credentials
	return config, nil
}

// PerApp reports whether a role of each app, and not the node itself, reads secrets of a source.
func (m Managers) PerApp(source target.SecretSource) bool {
	if source == target.SecretVault {
		return strings.Contains(m.VaultRole, AppPlaceholder)
	}
	return m.AWSRole != ""
}

// Probe reads a secret of a manager as the node itself would, and drops it. Its error contains the reason, and nothing
// of the secret.
func (m Managers) Probe(ctx context.Context, reference target.SecretReference, now time.Time) error {
	if !reference.Source.Managed() {
		return fmt.Errorf("%s is kept by the node; give a reference to a manager: awssm:NAME, ssm:NAME or vault:PATH#KEY", reference.Source)
	}
	text, err := newManagers(m, &identity.Node{Load: identity.Load}).read(ctx, documentKey{SecretReference: reference}, now)
	if err == nil && reference.Key != "" {
		_, err = secretmanager.Pick(text, reference.Key)
	}
	return err
}

// countReads counts reads of secrets by their source and result. Without a registerer it counts nothing.
func countReads(metrics prometheus.Registerer, read readDocument) readDocument {
	if metrics == nil {
		return read
	}
	reads := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_secret_reads_total", Help: "Reads of secrets from their managers.",
	}, []string{"source", "result"})
	metrics.MustRegister(reads)
	for _, source := range []target.SecretSource{target.SecretsManager, target.SecretParameterStore, target.SecretVault} {
		reads.WithLabelValues(string(source), "read")
		for kind := secretmanager.Unreachable; kind <= secretmanager.NotAsked; kind++ {
			reads.WithLabelValues(string(source), kind.String())
		}
	}
	return func(ctx context.Context, key documentKey, now time.Time) (string, error) {
		text, err := read(ctx, key, now)
		result := "read"
		if err != nil {
			var e *secretmanager.Error
			errors.As(err, &e)
			result = cmp.Or(e, &secretmanager.Error{Kind: secretmanager.Unusable}).Kind.String()
		}
		reads.WithLabelValues(string(key.Source), result).Inc()
		return text, err
	}
}
