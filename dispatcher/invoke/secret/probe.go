package secret

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/secretmanager"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// PerApp tells whether a role of each app, and not the node itself, reads secrets of a source.
func (m Managers) PerApp(source target.SecretSource) bool {
	if source == target.SecretVault {
		return strings.Contains(m.VaultRole, AppPlaceholder)
	}
	return m.AWSRole != ""
}

// Probe reads a secret of a manager as the node itself would, and drops it. Its error says what is wrong, and holds nothing of
// the secret.
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
