package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// callsGroup is the condition that an enabled job j calls a group g.
const callsGroup = `j.app_id = g.app_id AND j.target_group = g.name AND j.target_group <> '' AND j.deleted_at IS NULL AND j.enabled`

// silentGroups are groups g of apps a without an endpoint that gets requests, although enabled jobs call them. Whether names stand
// for endpoints is what each node finds out.
// $1 now
const silentGroups = `endpoint_groups AS g JOIN apps AS a ON a.id = g.app_id
	WHERE g.deleted_at IS NULL AND a.deleted_at IS NULL AND a.enabled AND NOT g.by_name
	AND NOT EXISTS (SELECT 1 FROM endpoints AS e WHERE e.group_id = g.id AND NOT e.draining AND (e.expires_at IS NULL OR e.expires_at > $1))
	AND EXISTS (SELECT 1 FROM jobs AS j WHERE ` + callsGroup + `)`

// silent looks for groups without an endpoint.
func (l *looker) silent(ctx context.Context) (err error) {
	args := statementArgs{l.at.UnixMilli()}
	l.found.Groups, err = foundFirst(ctx, l, func(row scanner) (g dispatcher.SilentGroup, err error) {
		err = row.Scan(&g.App, &g.Group, &g.Draining, optionalColumn(&g.LeftAt), &g.Jobs, &g.Job)
		return g, err
	}, `SELECT a.name, g.name,
			(SELECT count(*) FROM endpoints AS e WHERE e.group_id = g.id AND e.draining AND (e.expires_at IS NULL OR e.expires_at > $1)),
			g.left_at, (SELECT count(*) FROM jobs AS j WHERE `+callsGroup+`), (SELECT min(j.name) FROM jobs AS j WHERE `+callsGroup+`)
		FROM `+silentGroups+l.ofApps(`g.app_id`, &args)+` ORDER BY a.name, g.name`, args...)
	return err
}

// endingCertificates are those of enabled jobs and of groups that such jobs call. A job that is part of another or of an alert
// is not shown as one, so its owner is looked for there.
const endingCertificates = `SELECT j.app AS app, j.name AS job, '' AS grp, j.certificate_ends_at AS ends FROM jobs AS j
	WHERE j.certificate_ends_at IS NOT NULL AND j.deleted_at IS NULL AND j.enabled AND j.part_of = 0%[1]s
UNION ALL SELECT a.name, '', g.name, g.certificate_ends_at FROM endpoint_groups AS g JOIN apps AS a ON a.id = g.app_id
	WHERE g.certificate_ends_at IS NOT NULL AND g.deleted_at IS NULL AND a.deleted_at IS NULL
	AND EXISTS (SELECT 1 FROM jobs AS j WHERE ` + callsGroup + `)%[2]s`

// certificates looks for client certificates that end soon.
func (l *looker) certificates(ctx context.Context) (err error) {
	args := statementArgs{l.at.Add(dispatcher.CertificateWarning).UnixMilli()}
	of := fmt.Sprintf(endingCertificates, l.ofApps(`j.app_id`, &args), l.ofApps(`g.app_id`, &args))
	l.found.Certificates, err = foundFirst(ctx, l, func(row scanner) (c dispatcher.EndingCertificate, err error) {
		err = row.Scan(&c.App, &c.Job, &c.Group, instantColumn(&c.EndsAt))
		return c, err
	}, `SELECT c.app, c.job, c.grp, c.ends FROM (`+of+`) AS c WHERE c.ends < $1 ORDER BY c.ends, c.app, c.job, c.grp`, args...)
	return err
}

// isCredential is the condition that a run r failed because of a secret; see dispatcher.CredentialReasonOf.
const isCredential = `(r.class IN ('secret', 'oauth2', 'credentials') OR r.class = 'http_4xx' AND r.http_status IN (401, 403))`

// refusedRun is the latest attempt of a run that failed because of a secret.
type refusedRun struct {
	job int64
	key dispatcher.RunKey
	dispatcher.CredentialFailure
}

// credentials looks for jobs that fail because of a secret: in the latest failures, and in runs that are to be attempted again.
// Of both it looks through a bounded number.
func (l *looker) credentials(ctx context.Context) error {
	args := statementArgs{l.since.UnixMilli()}
	found := `SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.ended_at, r.class, r.http_status, r.error FROM (
			SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.ended_at, r.class, r.http_status, coalesce(r.error, '') AS error
			FROM runs AS r WHERE ` + isDead + ` AND r.kind < 16 AND r.ended_at >= $1 ORDER BY r.ended_at DESC LIMIT ` +
		strconv.Itoa(examinedFailures) + `) AS r WHERE ` + isCredential
	waiting := `SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, 0, r.class, r.http_status, r.error FROM (
			SELECT * FROM live_runs AS r WHERE r.kind < 16 LIMIT ` + strconv.Itoa(examinedFailures) + `) AS r
		WHERE r.state = 'retrying' AND ` + isCredential
	query := `SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.ended_at, r.class, r.http_status, r.error, j.app, j.name
		FROM (` + found + ` UNION ALL ` + waiting + `) AS r JOIN jobs AS j ON j.id = r.job_id WHERE j.deleted_at IS NULL` +
		l.ofApps(`j.app_id`, &args) + `
		ORDER BY CASE WHEN r.ended_at = 0 THEN 1 ELSE 0 END DESC, r.ended_at DESC, r.scheduled_at DESC LIMIT ` +
		strconv.Itoa(dispatcher.MaxCredentialRuns)
	runs, err := collect(ctx, l.read, scanRefused, query, args...)
	if err != nil {
		return err
	}
	var jobs []refusedRun
	for _, run := range runs {
		at := slices.IndexFunc(jobs, func(one refusedRun) bool { return one.job == run.job })
		if at < 0 {
			jobs, at = append(jobs, run), len(jobs)
		}
		jobs[at].Runs++
	}
	shown := begin(jobs)
	l.found.Credentials = dispatcher.Newest[dispatcher.CredentialFailure]{Items: []dispatcher.CredentialFailure{}, More: shown.More}
	if err := l.nameSecrets(ctx, shown.Items); err != nil {
		return err
	}
	for _, one := range shown.Items {
		l.found.Credentials.Items = append(l.found.Credentials.Items, one.CredentialFailure)
	}
	return nil
}

func scanRefused(row scanner) (r refusedRun, err error) {
	var ended int64
	err = row.Scan(&r.job, instantColumn(&r.key.ScheduledAt), &r.key.TriggerID, kindColumn(&r.key), &ended, &r.Class, &r.HTTPStatus, &r.Error,
		&r.App, &r.Job)
	if ended > 0 {
		r.At = instant(ended)
	}
	r.Reason, r.Run = dispatcher.CredentialReasonOf(r.Class, r.HTTPStatus), r.key.String()
	return r, err
}

// nameSecrets names the secrets that jobs send, themselves or by their groups.
func (l *looker) nameSecrets(ctx context.Context, of []refusedRun) error {
	if len(of) == 0 {
		return nil
	}
	ids := make([]int64, len(of))
	for i := range of {
		ids[i] = of[i].job
	}
	// From $1 on: ids
	read := l.rows(0, 1, "", idColumns...) +
		` SELECT ` + jobColumns + ` FROM b JOIN jobs AS j ON j.id = b.id JOIN apps AS a ON a.id = j.app_id`
	jobs, err := collect(ctx, l.read, scanJob, read, l.batch(ids)...)
	if err != nil {
		return err
	}
	groups, err := l.groupsOf(ctx, jobs)
	if err != nil {
		return err
	}
	for _, job := range jobs {
		at := slices.IndexFunc(of, func(one refusedRun) bool { return one.job == job.Key() })
		if at < 0 || job.Err != nil {
			continue
		}
		of[at].Secrets = dispatcher.SecretNames(job.Secrets())
		name := job.Target.GroupName()
		for where, what := range dispatcher.SecretNames(groups[dispatcher.GroupID(job.App, name)].Secrets()) {
			of[at].Secrets["group "+name+where] = what
		}
	}
	return nil
}

// groupsOf returns the groups that jobs call, by their ids.
func (l *looker) groupsOf(ctx context.Context, jobs []jobRow) (map[int64]dispatcher.EndpointGroup, error) {
	var ids []int64
	for _, job := range jobs {
		if name := job.Target.GroupName(); name != "" {
			ids = append(ids, dispatcher.GroupID(job.App, name))
		}
	}
	slices.Sort(ids)
	groups := map[int64]dispatcher.EndpointGroup{}
	// From $1 on: ids
	read := l.rows(0, 1, "", idColumns...) + ` SELECT g.id, ` + groupColumns + ` FROM b JOIN endpoint_groups AS g ON g.id = b.id
		WHERE g.deleted_at IS NULL`
	_, err := collect(ctx, l.read, func(row scanner) (struct{}, error) {
		var id int64
		group, err := scanGroup("")(widerRow{scanner: row, before: []any{&id}})
		groups[id] = group
		return struct{}{}, err
	}, read, l.batch(slices.Compact(ids))...)
	return groups, err
}

// forgottenPauses counts what was paused before a time without an end, of each kind up to a limit.
// $1 limit, $4 before
const forgottenPauses = `SELECT 'forgotten', '', (SELECT count(*) FROM (SELECT 1 FROM jobs AS j
		WHERE j.paused_at < $4 AND j.pause_until IS NULL AND j.deleted_at IS NULL AND j.paused_at IS NOT NULL LIMIT $1) AS j)
	+ (SELECT count(*) FROM (SELECT 1 FROM triggers AS t
		WHERE t.paused_at < $4 AND t.pause_until IS NULL AND t.deleted_at IS NULL AND t.paused_at IS NOT NULL LIMIT $1) AS t)
	+ (SELECT count(*) FROM (SELECT 1 FROM app_pauses AS p
		WHERE p.paused_at < $4 AND p.until_at IS NULL AND p.ended_at IS NULL LIMIT $1) AS p), 0`

// censusCauses counts what else asks for attention.
func (s *store) censusCauses(ctx context.Context, limit int, now time.Time, c *dispatcher.Census) error {
	// $1 now, $2 limit
	silent, _, err := first(ctx, s.read, scanInt, `SELECT count(*) FROM (SELECT 1 FROM `+silentGroups+` LIMIT $2) AS g`, now.UnixMilli(),
		limit)
	if err != nil {
		return fmt.Errorf("count groups without endpoints: %w", err)
	}
	end, _, err := first(ctx, s.read, scanNullInt, `SELECT min(c.ends) FROM (`+fmt.Sprintf(endingCertificates, ``, ``)+`) AS c`)
	if err != nil {
		return fmt.Errorf("look for certificates that end: %w", err)
	}
	late, err := s.lateRetention(ctx, now)
	if err != nil {
		return fmt.Errorf("look for history that should be gone: %w", err)
	}
	c.SilentGroups = int(silent)
	if end != nil {
		c.CertificateEnd = instant(*end)
	}
	if len(late) > 0 {
		c.RetentionBehind = slices.MaxFunc(late, func(a, b dispatcher.LateRetention) int { return cmp.Compare(a.Behind, b.Behind) }).Behind.Std()
	}
	return nil
}
