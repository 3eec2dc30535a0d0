package definitions

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// sealedRow is a row of secrets.
type sealedRow struct {
	ownerID int64
	path    string
	seal.Sealed
}

const sealedColumns = `s.owner_id, s.path, s.key_id, s.data_key, s.ciphertext`

func scanSealed(row db.Scanner) (r sealedRow, err error) {
	err = row.Scan(&r.ownerID, &r.path, &r.KeyID, &r.DataKey, &r.Ciphertext)
	return r, err
}

// secretOwner is the job or group that owns secrets.
type secretOwner struct {
	id    int64
	name  string // for errors, such as job crm/sync
	table string // with its secret_versions
	// A secret is bound to the text before and after its field here. Without a key, even someone who can write to the
	// database cannot move it to another owner, nor a job's secret to another origin.
	before  string
	after   func(path string) string
	secrets map[string]target.Secret
}

func ownerJob(job dispatcher.Job) secretOwner {
	return secretOwner{id: job.Key(), name: "job " + job.App + "/" + job.Name, table: "jobs",
		before: job.App + "/" + job.CreatedAs(), after: func(path string) string { return " " + job.Target.Origin(path) },
		secrets: target.Secrets(job.Target)}
}

func ownerGroup(group target.EndpointGroup) secretOwner {
	name := group.App + "/" + group.Name
	return secretOwner{id: run.GroupID(group.App, group.Name), name: "group " + name, table: "endpoint_groups",
		before: "group " + name, after: func(string) string { return "" }, secrets: target.Secrets(group)}
}

// sealedFor is the text that a secret is bound to: its owner, its field, the origin that a job sends it to, and its
// version, so that an older row cannot replace it.
func (o secretOwner) sealedFor(path, version string) string {
	return o.before + path + o.after(path) + " " + version
}

// secretVersions has the version of each stored secret of its owner, by path. It is a column of jobs and groups, so
// that a row of secrets cannot claim to be the latest. Each stored value gets a new random version, different even from
// those of a deleted job with the same name.
type secretVersions map[string]string

func readVersions(text string) (secretVersions, error) {
	v := secretVersions{}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, fmt.Errorf("stored versions of secrets: %w", err)
	}
	return v, nil
}

// versionedSecret is a secret to store.
type versionedSecret struct {
	seal.Sealed
	version string
}

// sealSecrets returns the secrets of an owner without their values, and the values to store, by their paths.
func (s *Store) sealSecrets(owner secretOwner) (map[string]target.Secret, map[string]versionedSecret) {
	given := maps.Clone(owner.secrets)
	sealed := map[string]versionedSecret{}
	for path, secret := range given {
		if secret.Value.IsZero() {
			continue
		}
		version := rand.Text()
		sealed[path] = versionedSecret{s.keys.Seal(secret.Value.Reveal(), owner.sealedFor(path, version)), version}
		given[path] = target.Secret{Stored: true}
	}
	return given, sealed
}

// sealJobSecrets returns a job without the values of the secrets of its target, and the values to store.
func (s *Store) sealJobSecrets(job dispatcher.Job) (dispatcher.Job, map[string]versionedSecret) {
	given, sealed := s.sealSecrets(ownerJob(job))
	job.Target = target.WithSecrets(job.Target, given)
	return job, sealed
}

// writeSecrets stores secrets of an owner by their paths, and removes those only in before.
func writeSecrets(ctx context.Context, t *dispatch.Tx, before map[string]target.Secret, owner secretOwner,
	sealed map[string]versionedSecret) error {
	for path, secret := range before {
		if !secret.Stored || owner.secrets[path].Stored {
			continue
		}
		// $1 owner, $2 path
		if err := t.Exec(ctx, `DELETE FROM secrets WHERE owner_id = $1 AND path = $2`, owner.id, path); err != nil {
			return fmt.Errorf("remove secret %s: %w", path, err)
		}
	}
	for path, one := range sealed {
		if err := putSealed(ctx, t, sealedRow{owner.id, path, one.Sealed}); err != nil {
			return fmt.Errorf("store secret %s: %w", path, err)
		}
	}
	if len(sealed) == 0 {
		return nil // the version of a removed secret is harmless
	}
	return writeVersions(ctx, t, owner, sealed)
}

// writeJobSecrets is writeSecrets for a job that replaces old.
func writeJobSecrets(ctx context.Context, t *dispatch.Tx, old *dispatcher.Job, job dispatcher.Job,
	sealed map[string]versionedSecret) error {
	var before map[string]target.Secret
	if old != nil {
		before = target.Secrets(old.Target)
	}
	return writeSecrets(ctx, t, before, ownerJob(job), sealed)
}

func removeSecrets(ctx context.Context, t *dispatch.Tx, owner int64) error {
	// $1 owner
	return t.Exec(ctx, `DELETE FROM secrets WHERE owner_id = $1`, owner)
}

// writeVersions replaces the versions of newly stored secrets.
func writeVersions(ctx context.Context, t *dispatch.Tx, owner secretOwner, sealed map[string]versionedSecret) error {
	// $1 owner
	text, _, err := db.First(ctx, t, db.ScanText, `SELECT secret_versions FROM `+owner.table+` WHERE id = $1`, owner.id)
	if err != nil {
		return err
	}
	before, err := readVersions(text)
	if err != nil {
		return err
	}
	versions := secretVersions{}
	for path, secret := range owner.secrets {
		switch one, replaced := sealed[path]; {
		case replaced:
			versions[path] = one.version
		case secret.Stored:
			versions[path] = before[path]
		}
	}
	// $1 versions, $2 owner
	return t.Exec(ctx, `UPDATE `+owner.table+` SET secret_versions = $1 WHERE id = $2`, db.JSONColumn(versions), owner.id)
}

func putSealed(ctx context.Context, t *dispatch.Tx, r sealedRow) error {
	// $1 owner, $2 path, $3 key, $4 data key, $5 ciphertext
	const put = `INSERT INTO secrets (owner_id, path, key_id, data_key, ciphertext) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (owner_id, path) DO UPDATE SET key_id = excluded.key_id, data_key = excluded.data_key, ciphertext = excluded.ciphertext`
	return t.Exec(ctx, put, r.ownerID, r.path, r.KeyID, r.DataKey, r.Ciphertext)
}

// openSecrets puts the values of stored secrets into jobs. A secret that does not open stays as it is: the attempt that
// needs it fails with the reason.
func (s *Store) openSecrets(ctx context.Context, q db.Querier, jobs []dispatcher.JobVersion) error {
	byID := map[int64]*dispatcher.JobVersion{}
	var owners []secretOwner
	for i := range jobs {
		if owner := ownerJob(jobs[i].Job); owner.hasStored() {
			byID[owner.id] = &jobs[i]
			owners = append(owners, owner)
		}
	}
	opened, err := s.openedSecrets(ctx, q, "jobs", owners)
	for id, secrets := range opened {
		byID[id].Target = target.WithSecrets(byID[id].Target, secrets)
	}
	return err
}

func (o secretOwner) hasStored() bool {
	for _, secret := range o.secrets {
		if secret.Stored {
			return true
		}
	}
	return false
}

// openedSecrets returns the stored secrets of owners in one table with their values, by owner and path. It leaves out
// secrets that do not open.
func (s *Store) openedSecrets(ctx context.Context, q db.Querier, table string,
	owners []secretOwner) (map[int64]map[string]target.Secret, error) {
	if len(owners) == 0 {
		return nil, nil
	}
	byID, ids := map[int64]secretOwner{}, make([]int64, len(owners))
	for i, owner := range owners {
		byID[owner.id], ids[i] = owner, owner.id
	}
	// From $1 on: the ids
	query := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT ` + sealedColumns + `, o.secret_versions FROM b
		JOIN secrets AS s ON s.owner_id = b.id JOIN ` + table + ` AS o ON o.id = s.owner_id`
	type versioned struct {
		sealedRow
		versions string
	}
	rows, err := db.Collect(ctx, q, func(row db.Scanner) (v versioned, err error) {
		v.sealedRow, err = scanSealed(db.WiderRow{Scanner: row, After: []any{&v.versions}})
		return v, err
	}, query, s.db.Batch(ids)...)
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", err)
	}
	opened := map[int64]map[string]target.Secret{}
	for _, r := range rows {
		versions, err := readVersions(r.versions)
		if err != nil {
			continue
		}
		text, err := s.keys.Open(r.Sealed, byID[r.ownerID].sealedFor(r.path, versions[r.path]))
		if err != nil {
			continue
		}
		if opened[r.ownerID] == nil {
			opened[r.ownerID] = map[string]target.Secret{}
		}
		opened[r.ownerID][r.path] = target.Secret{Stored: true, Value: input.NewSensitive(text)}
	}
	return opened, nil
}

// CheckKeys refuses a database with secrets that the keys cannot open.
func (s *Store) CheckKeys(ctx context.Context) error {
	missing, err := MissingKeys(ctx, s.db.Read, s.keys)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%w: secrets are stored under key %s", dispatcher.ErrKeyMissing, strings.Join(missing, ", "))
	}
	return err
}

// MissingKeys returns the ids of missing keys that secrets are stored under.
func MissingKeys(ctx context.Context, q db.Querier, keys *seal.Keys) (missing []string, err error) {
	const used = `SELECT DISTINCT key_id FROM secrets ORDER BY key_id`
	ids, err := db.Collect(ctx, q, db.ScanText, used)
	if err != nil {
		return nil, fmt.Errorf("read the keys of secrets: %w", err)
	}
	for _, id := range ids {
		if !keys.Has(id) {
			missing = append(missing, id)
		}
	}
	return missing, nil
}

// RewrapSecrets rewraps all secrets under the current key.
func (s *Store) RewrapSecrets(ctx context.Context, change input.Change) (int, error) {
	if s.keys == nil {
		return 0, fmt.Errorf("rewrap secrets: %w", dispatcher.ErrKeyMissing)
	}
	count := 0
	err := s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		count = 0
		for _, others := range []string{othersOfJobs, othersOfGroups} {
			rewrapped, err := s.rewrap(ctx, t, others)
			if err != nil {
				return err
			}
			count += rewrapped
		}
		rewrapped, err := s.rewrapCallbackKey(ctx, t)
		if err != nil {
			return err
		}
		count += rewrapped
		return t.AuditChange(ctx, dispatch.AuditEntry{Action: "rewrap", Subject: "secrets",
			After: map[string]any{"key": s.keys.Current(), "secrets": count}})
	})
	return count, err
}

// The secrets under other keys than the current one, with their owners. $1 current key
const (
	othersOfJobs = `SELECT ` + sealedColumns + `, a.name, o.name, o.origin, o.target, o.secret_versions FROM secrets AS s
		JOIN jobs AS o ON o.id = s.owner_id JOIN apps AS a ON a.id = o.app_id WHERE s.key_id <> $1 ORDER BY s.owner_id, s.path`
	othersOfGroups = `SELECT ` + sealedColumns + `, a.name, o.name, '', '', o.secret_versions FROM secrets AS s
		JOIN endpoint_groups AS o ON o.id = s.owner_id JOIN apps AS a ON a.id = o.app_id WHERE s.key_id <> $1 ORDER BY s.owner_id, s.path`
)

// rewrap rewraps the secrets found by a query under the current key, and returns how many.
func (s *Store) rewrap(ctx context.Context, t *dispatch.Tx, others string) (int, error) {
	type owned struct {
		sealedRow
		app, name, origin, target, versions string
	}
	rows, err := db.Collect(ctx, t, func(row db.Scanner) (o owned, err error) {
		o.sealedRow, err = scanSealed(db.WiderRow{Scanner: row, After: []any{&o.app, &o.name, &o.origin, &o.target, &o.versions}})
		return o, err
	}, others+db.LockOf(t.ForUpdate(), "s"), s.keys.Current())
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		owner := ownerGroup(target.EndpointGroup{App: r.app, Name: r.name})
		if r.target != "" {
			job := dispatcher.Job{App: r.app, Name: r.name, Origin: r.origin}
			if err := json.Unmarshal([]byte(r.target), &job.Target); err != nil {
				return 0, fmt.Errorf("job %s/%s: stored target: %w", r.app, r.name, err)
			}
			owner = ownerJob(job)
		}
		versions, err := readVersions(r.versions)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", owner.name, err)
		}
		if r.Sealed, err = s.keys.Rewrap(r.Sealed, owner.sealedFor(r.path, versions[r.path])); err != nil {
			return 0, fmt.Errorf("%s: secret %s: %w", owner.name, r.path, err)
		}
		if err := putSealed(ctx, t, r.sealedRow); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

// The key of the tokens of callbacks is stored with the secrets, with owner 0, if there are key-encryption keys; else
// in plain text in the row of the installation. It is sealed when keys are configured for the first time.
const (
	callbackKeyPath  = "/callback_key"
	callbackKeyBytes = 32
)

// callbackKeyPlace is the text that the sealed key is bound to.
const callbackKeyPlace = "installation callback_key"

// CallbackKey returns the key for making the tokens of callbacks.
func (s *Store) CallbackKey(ctx context.Context) ([]byte, error) {
	key, done, err := s.readCallbackKey(ctx, s.db.Read)
	if err == nil && !done {
		err = s.dispatch.Change(ctx, input.Change{}, func(ctx context.Context, t *dispatch.Tx) error {
			// Another node may be making one at the same time.
			if _, _, err := db.First(ctx, t, db.ScanText, `SELECT id FROM installation`+t.ForUpdate()); err != nil {
				return err
			}
			if key, done, err = s.readCallbackKey(ctx, t); err != nil || done {
				return err
			}
			if key == nil {
				key = make([]byte, callbackKeyBytes)
				_, _ = rand.Read(key) // never fails since Go 1.24
			}
			text := hex.EncodeToString(key)
			if s.keys != nil {
				row := sealedRow{path: callbackKeyPath, Sealed: s.keys.Seal(text, callbackKeyPlace)}
				if err := putSealed(ctx, t, row); err != nil {
					return err
				}
				text = ""
			}
			// $1 key
			return t.Exec(ctx, `UPDATE installation SET callback_key = $1`, text)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("key of callbacks: %w", err)
	}
	return key, nil
}

// readCallbackKey reads the key; nil: none. done means that it is stored in the right form.
func (s *Store) readCallbackKey(ctx context.Context, q db.Querier) (key []byte, done bool, err error) {
	// $1 path
	const sealed = `SELECT ` + sealedColumns + ` FROM secrets AS s WHERE s.owner_id = 0 AND s.path = $1`
	row, found, err := db.First(ctx, q, scanSealed, sealed, callbackKeyPath)
	if err != nil {
		return nil, false, err
	}
	text := ""
	if found {
		text, err = s.keys.Open(row.Sealed, callbackKeyPlace)
	} else {
		text, _, err = db.First(ctx, q, db.ScanText, `SELECT callback_key FROM installation`)
	}
	if err != nil || text == "" {
		return nil, false, err
	}
	key, err = hex.DecodeString(text)
	return key, found || s.keys == nil, err
}

// rewrapCallbackKey rewraps the key under the current key-encryption key, and returns how many keys it changed.
func (s *Store) rewrapCallbackKey(ctx context.Context, t *dispatch.Tx) (int, error) {
	// $1 path, $2 current key
	const others = `SELECT ` + sealedColumns + ` FROM secrets AS s WHERE s.owner_id = 0 AND s.path = $1 AND s.key_id <> $2`
	row, found, err := db.First(ctx, t, scanSealed, others+t.ForUpdate(), callbackKeyPath, s.keys.Current())
	if err != nil || !found {
		return 0, err
	}
	if row.Sealed, err = s.keys.Rewrap(row.Sealed, callbackKeyPlace); err != nil {
		return 0, fmt.Errorf("key of callbacks: %w", err)
	}
	return 1, putSealed(ctx, t, row)
}
