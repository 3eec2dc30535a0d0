// Package secret looks up the secrets that jobs refer to: in variables and files of the node, and in managers of
// secrets, with the identity of the job's app.
package secret

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/secretmanager"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// foundLifetime is the time for which a variable or file is cached. A rotated secret is used after this time,
// and a busy job does not read a file for every request.
const foundLifetime = 10 * time.Second

// defaultDir is the default directory of secret files. No platform puts secrets of the node itself there.
const defaultDir = "/etc/carillon/secrets"

// Reader looks up the secrets that jobs refer to.
type Reader struct {
	dir       string
	documents *documents // of managers of secrets

	mu sync.Mutex
	of map[string]foundSecret // by references to variables and files
}

type foundSecret struct {
	text  string
	until time.Time
}

// Owner is the app for which a secret is looked up.
type Owner struct {
	App           string
	AWSExternalID string
	Bounds        *target.Bounds
}

// OwnerOf returns the app of a call.
func OwnerOf(call target.Call) Owner { return Owner{call.App, call.AWSExternalID, call.Bounds} }

// Sent is a secret as it was sent.
type Sent struct{ Reference, Text string }

// New returns a Reader of secrets in files of dir, by default defaultDir, in variables and in their managers. Its
// metrics count reads of managers; they may be nil.
func New(dir string, m Managers, node *identity.Node, metrics prometheus.Registerer, log *slog.Logger) *Reader {
	counted := countReads(metrics, newManagers(m, node).read)
	return &Reader{
		dir: cmp.Or(dir, defaultDir), of: map[string]foundSecret{},
		documents: newDocuments(cmp.Or(m.Lifetime, defaultLifetime), m.Keep, log, counted),
	}
}

// Close ends the reads in progress, and waits for them.
func (s *Reader) Close() { s.documents.close() }

// Reveal returns the text of a secret of an app at now. Its error never contains any part of the text. For a secret
// that the bounds do not allow, the error does not show whether it exists.
func (s *Reader) Reveal(ctx context.Context, of Owner, secret target.Secret, now time.Time) (string, error) {
	switch {
	case !secret.Value.IsZero():
		return secret.Value.Reveal(), nil
	case secret.Stored:
		return "", errors.New("the stored value cannot be decrypted: " +
			"this node lacks its key, or the database holds one of another job, field or host, or an older one; store the value again")
	}
	if !of.Bounds.AllowsSecret(secret.Reference) {
		return "", attempt.OutOfBounds(fmt.Errorf("%s is not one that app %s may use; its bounds allow %s (secrets)",
			input.Echo(secret.Reference), of.App, strings.Join(of.Bounds.Secrets, ", ")))
	}
	s.mu.Lock()
	found, ok := s.of[secret.Reference]
	s.mu.Unlock()
	if ok && now.Before(found.until) {
		return found.text, nil
	}
	if r, err := target.ParseSecretReference(secret.Reference); r.Source.Managed() {
		if err != nil {
			return "", err
		}
		text, err := s.managed(ctx, documentKey{of.App, of.AWSExternalID, r}, s.documents.text, now)
		if err != nil {
			return "", fmt.Errorf("%s: %w", input.Echo(secret.Reference), err)
		}
		return text, nil
	}
	text, err := s.lookUp(secret.Reference)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.of, secret.Reference)
		return "", err
	}
	s.of[secret.Reference] = foundSecret{text, now.Add(foundLifetime)}
	return text, nil
}

// managed returns the text of a secret of a manager. get is a way to get the whole secret.
func (s *Reader) managed(ctx context.Context, key documentKey, get readDocument, now time.Time) (string, error) {
	field := key.Key
	key.Key = "" // the secret is read as a whole
	text, err := get(ctx, key, now)
	if err == nil {
		text, err = secretmanager.Pick(text, field)
	}
	if err == nil && len(text) > target.MaxSecret {
		err = fmt.Errorf("it has more than %d KiB", target.MaxSecret>>10)
	}
	return text, err
}

// Replaced reports whether a secret of a manager differs from the one that was sent. When a target refuses a request,
// the manager is queried before the secret is due, but only once until then.
func (s *Reader) Replaced(ctx context.Context, of Owner, sent []Sent, now time.Time) bool {
	replaced := false
	for _, one := range sent {
		r, err := target.ParseSecretReference(one.Reference)
		if err != nil || !r.Source.Managed() {
			continue
		}
		text, err := s.managed(ctx, documentKey{of.App, of.AWSExternalID, r}, s.documents.again, now)
		replaced = replaced || err == nil && text != one.Text
	}
	return replaced
}

func (s *Reader) lookUp(reference string) (string, error) {
	if name, ok := strings.CutPrefix(reference, "env:"); ok && strings.HasPrefix(name, target.SecretEnvPrefix) {
		if text := os.Getenv(name); text != "" {
			return text, nil
		}
		return "", fmt.Errorf("%s is not set in the environment of this node", reference)
	}
	path, ok := strings.CutPrefix(reference, "file:")
	if !ok {
		return "", errors.New("this version of Carillon does not know this kind of reference")
	}
	text, err := s.readFile(path)
	var wrong *fs.PathError
	switch {
	case errors.As(err, &wrong):
		err = wrong.Err // the path is in the reference
	case err == nil && text == "":
		err = errors.New("the file is empty")
	}
	if err != nil {
		return "", fmt.Errorf("%s in the secret directory: %w", reference, err)
	}
	return text, nil
}

// readFile reads a file in the secret directory. Links may not lead out of the directory at the beginning of the path,
// which is by default the directory of the app.
func (s *Reader) readFile(path string) (string, error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if app, below, found := strings.Cut(path, "/"); found {
		// The directory of the app itself may be a link, as in volumes of Kubernetes.
		if root, err = root.OpenRoot(app); err != nil {
			return "", err
		}
		defer root.Close()
		path = below
	}
	info, err := root.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > target.MaxSecret {
		return "", fmt.Errorf("not a regular file of at most %d KiB", target.MaxSecret>>10)
	}
	file, err := root.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, target.MaxSecret))
	return strings.TrimRight(string(text), "\r\n"), err
}
