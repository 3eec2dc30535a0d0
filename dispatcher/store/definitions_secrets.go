package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
)

// sealedRow is a row of secrets.
type sealedRow struct {
	jobID int64
	path  string
	seal.Sealed
}

const sealedColumns = `s.job_id, s.path, s.key_id, s.data_key, s.ciphertext`

func scanSealed(row scanner) (r sealedRow, err error) {
	err = row.Scan(&r.jobID, &r.path, &r.KeyID, &r.DataKey, &r.Ciphertext)
	return r, err
}

// sealedFor is what a secret is bound to: its job, by the name that it was created with, its field, where it is sent, and its
// version. Without a key, even someone who can write to the database cannot move it to another, and cannot put an older row in
// its place.
func sealedFor(job dispatcher.Job, path, version string) string {
	return job.App + "/" + job.CreatedAs() + path + " " + job.Target.Origin() + " " + version
}

// secretVersions has the version of each stored secret of a job, by its path. It is a column of jobs, so that a row of
// secrets does not say of itself that it is the latest. Each value that is stored gets a new one at random, which not
// even a job that was deleted and declared again has had before.
type secretVersions map[string]string

func readVersions(text string) (secretVersions, error) {
	v := secretVersions{}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, fmt.Errorf("stored versions of secrets: %w", err)
	}
	return v, nil
}

// versionedSecret is a secret that is to be stored.
type versionedSecret struct {
	seal.Sealed
	version string
}

// sealSecrets returns a job without the values of its secrets, and what is to be stored of them
// by their paths. old is what the job replaces.
func (s *store) sealSecrets(old *dispatcher.Job, job dispatcher.Job) (dispatcher.Job, map[string]versionedSecret, error) {
	given, before := job.Target.Secrets(), map[string]dispatcher.Secret{}
	if old != nil {
		before = old.Target.Secrets()
	}
	var problems dispatcher.Problems
	sealed := map[string]versionedSecret{}
	for _, path := range sortedKeys(given) {
		secret := given[path]
		switch at := "/target" + path; {
		case secret.Stored && !before[path].Stored:
			problems.Add(at+"/stored", dispatcher.CodeSecretMissing, "no value is stored for this secret; give its value, or refer to it")
		case secret.Value.IsZero():
		case s.keys == nil:
			problems.Add(at+"/value", dispatcher.CodeSecretKeys, "value cannot be stored, for the node has no key to encrypt it with; "+
				"start the nodes with --secret-keys-file (or CARILLON_SECRET_KEYS), or refer to the secret as env:%sNAME or file:PATH",
				dispatcher.SecretEnvPrefix)
		default:
			version := rand.Text()
			sealed[path] = versionedSecret{s.keys.Seal(secret.Value.Reveal(), sealedFor(job, path, version)), version}
			given[path] = dispatcher.Secret{Stored: true}
		}
	}
	job.Target = job.Target.WithSecrets(given)
	return job, sealed, problems.Err()
}

// writeSecrets stores secrets of a job by their paths, and removes those that it has no more.
func (t *tx) writeSecrets(ctx context.Context, old *dispatcher.Job, job dispatcher.Job, sealed map[string]versionedSecret) error {
	jobID, given := job.Key(), job.Target.Secrets()
	if old != nil {
		for path, secret := range old.Target.Secrets() {
			if !secret.Stored || given[path].Stored {
				continue
			}
			// $1 job, $2 path
			if _, err := t.ExecContext(ctx, `DELETE FROM secrets WHERE job_id = $1 AND path = $2`, jobID, path); err != nil {
				return fmt.Errorf("remove secret %s: %w", path, err)
			}
		}
	}
	for path, one := range sealed {
		if err := t.putSealed(ctx, sealedRow{jobID, path, one.Sealed}); err != nil {
			return fmt.Errorf("store secret %s: %w", path, err)
		}
	}
	if len(sealed) == 0 {
		return nil // the version of one that is removed opens nothing
	}
	return t.writeVersions(ctx, jobID, given, sealed)
}

// writeVersions replaces the versions of those secrets that were stored now.
func (t *tx) writeVersions(ctx context.Context, jobID int64, given map[string]dispatcher.Secret, sealed map[string]versionedSecret) error {
	// $1 job
	text, _, err := first(ctx, t, scanText, `SELECT secret_versions FROM jobs WHERE id = $1`, jobID)
	if err != nil {
		return err
	}
	before, err := readVersions(text)
	if err != nil {
		return err
	}
	versions := secretVersions{}
	for path, secret := range given {
		switch one, replaced := sealed[path]; {
		case replaced:
			versions[path] = one.version
		case secret.Stored:
			versions[path] = before[path]
		}
	}
	encoded, err := json.Marshal(versions)
	if err != nil {
		return err
	}
	// $1 versions, $2 job
	_, err = t.ExecContext(ctx, `UPDATE jobs SET secret_versions = $1 WHERE id = $2`, string(encoded), jobID)
	return err
}

func (t *tx) putSealed(ctx context.Context, r sealedRow) error {
	// $1 job, $2 path, $3 key, $4 data key, $5 ciphertext
	const put = `INSERT INTO secrets (job_id, path, key_id, data_key, ciphertext) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (job_id, path) DO UPDATE SET key_id = excluded.key_id, data_key = excluded.data_key, ciphertext = excluded.ciphertext`
	_, err := t.ExecContext(ctx, put, r.jobID, r.path, r.KeyID, r.DataKey, r.Ciphertext)
	return err
}

// openSecrets puts the values of stored secrets into jobs. One that does not open stays as it
// is: the attempt that needs it says so.
func (s *store) openSecrets(ctx context.Context, q querier, jobs []dispatcher.JobVersion) error {
	byID := map[int64]*dispatcher.JobVersion{}
	var ids []int64
	for i := range jobs {
		for _, secret := range jobs[i].Target.Secrets() {
			if secret.Stored {
				byID[jobs[i].ID] = &jobs[i]
			}
		}
		if byID[jobs[i].ID] != nil {
			ids = append(ids, jobs[i].ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	// From $1 on: the ids
	query := s.rows(0, 1, "", idColumns...) + ` SELECT ` + sealedColumns + `, j.secret_versions FROM b
		JOIN secrets AS s ON s.job_id = b.id JOIN jobs AS j ON j.id = s.job_id`
	type versioned struct {
		sealedRow
		versions string
	}
	rows, err := collect(ctx, q, func(row scanner) (v versioned, err error) {
		v.sealedRow, err = scanSealed(widerRow{scanner: row, after: []any{&v.versions}})
		return v, err
	}, query, s.batch(ids)...)
	if err != nil {
		return fmt.Errorf("read secrets: %w", err)
	}
	opened := map[int64]map[string]dispatcher.Secret{}
	for _, r := range rows {
		versions, err := readVersions(r.versions)
		if err != nil {
			continue
		}
		text, err := s.keys.Open(r.Sealed, sealedFor(byID[r.jobID].Job, r.path, versions[r.path]))
		if err != nil {
			continue
		}
		if opened[r.jobID] == nil {
			opened[r.jobID] = map[string]dispatcher.Secret{}
		}
		opened[r.jobID][r.path] = dispatcher.Secret{Stored: true, Value: dispatcher.NewSensitive(text)}
	}
	for id, secrets := range opened {
		byID[id].Target = byID[id].Target.WithSecrets(secrets)
	}
	return nil
}

// checkKeys refuses a database with secrets that the keys do not open.
func (s *store) checkKeys(ctx context.Context) error {
	missing, err := missingKeys(ctx, s.read, s.keys)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%w: secrets are stored under key %s", dispatcher.ErrKeyMissing, strings.Join(missing, ", "))
	}
	return err
}

// missingKeys returns the ids of the keys that secrets are stored under and that are not there.
func missingKeys(ctx context.Context, q querier, keys *seal.Keys) (missing []string, err error) {
	const used = `SELECT DISTINCT key_id FROM secrets ORDER BY key_id`
	ids, err := collect(ctx, q, scanText, used)
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

// RewrapSecrets brings all secrets under the current key.
func (s *store) RewrapSecrets(ctx context.Context, change dispatcher.Change) (int, error) {
	if s.keys == nil {
		return 0, fmt.Errorf("rewrap secrets: %w", dispatcher.ErrKeyMissing)
	}
	count := 0
	err := s.change(ctx, change, func(ctx context.Context, t *tx) error {
		count = 0
		// $1 current key
		const others = `SELECT ` + sealedColumns + `, a.name, j.name, j.origin, j.target, j.secret_versions FROM secrets AS s
			JOIN jobs AS j ON j.id = s.job_id JOIN apps AS a ON a.id = j.app_id WHERE s.key_id <> $1 ORDER BY s.job_id, s.path`
		type named struct {
			sealedRow
			job              dispatcher.Job
			target, versions string
		}
		rows, err := collect(ctx, t, func(row scanner) (n named, err error) {
			n.sealedRow, err = scanSealed(widerRow{scanner: row, after: []any{&n.job.App, &n.job.Name, &n.job.Origin, &n.target, &n.versions}})
			return n, err
		}, others+lockOf(t.lock(), "s"), s.keys.Current())
		if err != nil {
			return err
		}
		for _, r := range rows {
			if err := json.Unmarshal([]byte(r.target), &r.job.Target); err != nil {
				return fmt.Errorf("job %s/%s: stored target: %w", r.job.App, r.job.Name, err)
			}
			versions, err := readVersions(r.versions)
			if err != nil {
				return fmt.Errorf("job %s/%s: %w", r.job.App, r.job.Name, err)
			}
			if r.Sealed, err = s.keys.Rewrap(r.Sealed, sealedFor(r.job, r.path, versions[r.path])); err != nil {
				return fmt.Errorf("job %s/%s: secret %s: %w", r.job.App, r.job.Name, r.path, err)
			}
			if err := t.putSealed(ctx, r.sealedRow); err != nil {
				return err
			}
			count++
		}
		return t.auditChange(ctx, auditEntry{action: "rewrap", subject: "secrets",
			after: map[string]any{"key": s.keys.Current(), "secrets": count}})
	})
	return count, err
}
