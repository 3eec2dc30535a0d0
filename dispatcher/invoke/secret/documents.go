package secret

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/secretmanager"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Bounds of the cache of secrets from managers.
const (
	// readTimeout is how long a manager may take, including the login. A slower one counts as unreachable.
	readTimeout = 5 * time.Second
	// failurePause is how long a failure counts, so that a busy job does not query a failing manager all the time.
	failurePause = 5 * time.Second
	// mostDocuments is how many secrets are kept, and mostDocumentBytes their size in total.
	mostDocuments, mostDocumentBytes = 10_000, 64 << 20
)

// documentKey is a version of a whole secret, for one app: an app sees only secrets that its identity may read.
type documentKey struct {
	app, externalID string
	target.SecretReference
}

// readDocument reads a secret from its manager.
type readDocument func(ctx context.Context, key documentKey, now time.Time) (string, error)

// documents keeps the secrets that managers returned. All fields of a secret are read at once, so that a user name and
// its password are of the same version.
type documents struct {
	read readDocument
	// lifetime is how long a secret is used until it is read again. keep is how long after its read it is used while
	// its manager is unreachable or throttles.
	lifetime, keep time.Duration
	log            *slog.Logger

	mu    sync.Mutex
	of    map[documentKey]*document
	bytes int
	reads sync.WaitGroup
}

// document is the latest read of a secret.
type document struct {
	text   string
	readAt time.Time // zero: no text
	err    error     // of the last read
	next   time.Time // when it is read again
	// reading is closed when the read in progress ends; nil: none is.
	reading chan struct{}
	cancel  context.CancelFunc // of the read in progress
	// reread means that it has been read again because a target refused it, since it last became due.
	reread bool
}

// newDocuments returns an empty cache. It reads nothing.
func newDocuments(lifetime, keep time.Duration, log *slog.Logger, read readDocument) *documents {
	return &documents{read: read, lifetime: lifetime, keep: keep, log: log, of: map[documentKey]*document{}}
}

// close ends the reads in progress, and waits for them.
func (d *documents) close() {
	d.mu.Lock()
	for _, e := range d.of {
		if e.reading != nil {
			e.cancel()
		}
	}
	d.mu.Unlock()
	d.reads.Wait()
}

// text returns a secret at now: the known one, or a new read. If several attempts need it at once, one reads it and all
// wait, until their ctx ends at most. While its manager is in trouble, none waits: all get the last value, and a read
// goes on in the background.
func (d *documents) text(ctx context.Context, key documentKey, now time.Time) (string, error) {
	d.mu.Lock()
	e := d.entry(key)
	if e.reading == nil && !now.Before(e.next) {
		e.reread = false
		d.start(ctx, key, e, now)
	}
	if d.usable(e, now) {
		defer d.mu.Unlock()
		return e.text, nil
	}
	return d.await(ctx, e, now)
}

// usable reports whether the last value is to be used although the last read failed. d.mu is held.
func (d *documents) usable(e *document, now time.Time) bool {
	return secretmanager.IsTemporary(e.err) && !e.readAt.IsZero() && now.Sub(e.readAt) < d.keep
}

// again reads a secret that a target refused again, unless that has been done since the secret was last due.
func (d *documents) again(ctx context.Context, key documentKey, now time.Time) (string, error) {
	d.mu.Lock()
	e := d.entry(key)
	if e.reading == nil && !e.reread && e.err == nil {
		e.reread = true
		d.start(ctx, key, e, now)
	}
	return d.await(ctx, e, now)
}

// entry returns the cached secret, and makes its entry if needed. d.mu is held.
func (d *documents) entry(key documentKey) *document {
	e, ok := d.of[key]
	if !ok {
		if len(d.of) >= mostDocuments || d.bytes > mostDocumentBytes {
			// The tenth of the secrets that were due first, or have not been read, makes room.
			var keys []documentKey
			for key, e := range d.of {
				if e.reading == nil {
					keys = append(keys, key)
				}
			}
			slices.SortFunc(keys, func(a, b documentKey) int {
				return cmp.Or(d.of[a].next.Compare(d.of[b].next), cmp.Compare(a.Name, b.Name))
			})
			for _, key := range keys[:(len(keys)+9)/10] {
				d.bytes -= len(d.of[key].text)
				delete(d.of, key)
			}
		}
		e = &document{}
		d.of[key] = e
	}
	return e
}

// await waits for the read in progress, if any, and returns its result. d.mu is held, and released.
func (d *documents) await(ctx context.Context, e *document, now time.Time) (string, error) {
	defer d.mu.Unlock()
	if reading := e.reading; reading != nil {
		d.mu.Unlock()
		var err error
		select {
		case <-reading:
		case <-ctx.Done():
			err = errors.New("its manager did not respond within the time of the attempt")
		}
		d.mu.Lock()
		if err != nil {
			return "", err
		}
	}
	if e.err == nil || d.usable(e, now) {
		return e.text, nil
	}
	return "", e.err
}

// start begins to read a secret. The read outlives the attempt of ctx, because others may wait for it. d.mu is held.
func (d *documents) start(ctx context.Context, key documentKey, e *document, now time.Time) {
	reading := make(chan struct{})
	ctx, e.cancel = context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	e.reading = reading
	d.reads.Go(func() {
		defer e.cancel()
		text, err := d.read(ctx, key, now)
		d.mu.Lock()
		defer d.mu.Unlock()
		switch {
		case err == nil && e.err != nil:
			d.log.InfoContext(ctx, "secret can be read again", "app", key.app, "secret", key.Whole())
		case err != nil && e.err == nil:
			d.log.WarnContext(ctx, "secret cannot be read", "app", key.app, "secret", key.Whole(),
				"last_value_used", secretmanager.IsTemporary(err) && !e.readAt.IsZero() && d.keep > 0, "err", err)
		}
		d.store(e, text, err, now)
		e.reading = nil
		close(reading)
	})
}

// store keeps the result of a read. A secret that is denied or deleted is removed at once, so that no later trouble of
// the manager brings it back. d.mu is held.
func (d *documents) store(e *document, text string, err error, now time.Time) {
	e.err = err
	switch {
	case err == nil:
		d.bytes += len(text) - len(e.text)
		e.text, e.readAt, e.next = text, now, now.Add(d.lifetime)
		return
	case !secretmanager.IsTemporary(err):
		d.bytes -= len(e.text)
		e.text, e.readAt = "", time.Time{}
	}
	e.next = now.Add(min(d.lifetime, failurePause))
}

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
