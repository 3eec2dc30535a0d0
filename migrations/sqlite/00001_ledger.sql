-- +goose Up

-- The same tables as PostgreSQL's, where each is explained.

CREATE TABLE installation (
  id TEXT NOT NULL,
  audit_key TEXT NOT NULL,
  callback_key TEXT NOT NULL DEFAULT '',
  zones TEXT NOT NULL DEFAULT '',
  zones_checked_at INTEGER NOT NULL DEFAULT 0,
  database_identity TEXT NOT NULL DEFAULT '',
  rolled_back_at INTEGER,
  rollback_reason TEXT NOT NULL DEFAULT '',
  rollback_choice TEXT NOT NULL DEFAULT '',
  rollback_skip_to INTEGER NOT NULL DEFAULT 0,
  rollback_settled_at INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO installation (id, audit_key) VALUES (lower(hex(randomblob(16))), lower(hex(randomblob(32))));

CREATE TABLE zone_data (
  one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
  sum TEXT NOT NULL,
  release TEXT NOT NULL,
  archive BLOB NOT NULL,
  set_at INTEGER NOT NULL,
  set_by TEXT NOT NULL
) STRICT;

CREATE TABLE apps (
  id INTEGER NOT NULL PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  description TEXT NOT NULL,
  enabled INTEGER NOT NULL,
  owner_enabled INTEGER NOT NULL DEFAULT TRUE,
  defaults TEXT,
  bounds TEXT NOT NULL DEFAULT '{}',
  external_id TEXT NOT NULL DEFAULT '',
  longer_names TEXT NOT NULL DEFAULT '',
  retention INTEGER NOT NULL,
  history_from INTEGER NOT NULL DEFAULT 0,
  sweep_from INTEGER NOT NULL DEFAULT 0,
  sweep_to INTEGER NOT NULL DEFAULT 0,
  sweep_after TEXT NOT NULL DEFAULT '',
  revision INTEGER NOT NULL,
  calendar_revision INTEGER NOT NULL DEFAULT 0,
  installation TEXT NOT NULL DEFAULT '',
  salt BLOB NOT NULL DEFAULT x'',
  switched_to INTEGER,
  alerts_swept_to TEXT,
  paused_to INTEGER,
  importing_until INTEGER,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  deleted_at INTEGER
) STRICT;
CREATE INDEX apps_switched ON apps (id) WHERE switched_to IS NOT NULL;
CREATE INDEX apps_alerts_swept ON apps (id) WHERE alerts_swept_to IS NOT NULL;
CREATE INDEX apps_pausing ON apps (id) WHERE paused_to IS NOT NULL;
CREATE INDEX apps_importing ON apps (importing_until) WHERE importing_until IS NOT NULL;

CREATE TABLE app_pauses (
  app_id INTEGER NOT NULL,
  id TEXT NOT NULL,
  labels TEXT NOT NULL,
  reason TEXT NOT NULL,
  paused_by TEXT NOT NULL,
  paused_at INTEGER NOT NULL,
  until_at INTEGER,
  ended_at INTEGER,
  ended_by TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (app_id, id)
) STRICT;
CREATE INDEX app_pauses_app ON app_pauses (app_id, ended_at);
CREATE INDEX app_pauses_held ON app_pauses (paused_at) WHERE ended_at IS NULL;
CREATE INDEX app_pauses_until ON app_pauses (until_at) WHERE until_at IS NOT NULL AND ended_at IS NULL;
CREATE INDEX app_pauses_ended ON app_pauses (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE app_usage (
  app_id INTEGER NOT NULL PRIMARY KEY,
  jobs INTEGER NOT NULL DEFAULT 0,
  triggers INTEGER NOT NULL DEFAULT 0,
  minute INTEGER NOT NULL DEFAULT 0,
  manual_runs INTEGER NOT NULL DEFAULT 0,
  waiting_runs INTEGER NOT NULL DEFAULT 0,
  counted_at INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE app_bytes (
  app_id INTEGER NOT NULL,
  day INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY (app_id, day)
) STRICT;

CREATE TABLE jobs (
  id INTEGER NOT NULL PRIMARY KEY,
  app_id INTEGER NOT NULL REFERENCES apps (id),
  app TEXT NOT NULL DEFAULT '',
  name TEXT NOT NULL,
  origin TEXT NOT NULL DEFAULT '',
  description TEXT NOT NULL,
  runbook_url TEXT NOT NULL DEFAULT '',
  enabled INTEGER NOT NULL,
  paused INTEGER NOT NULL,
  pause TEXT,
  paused_at INTEGER,
  pause_until INTEGER,
  app_paused INTEGER NOT NULL DEFAULT FALSE,
  priority INTEGER NOT NULL,
  labels TEXT NOT NULL DEFAULT '',
  node_labels TEXT NOT NULL,
  delivery TEXT NOT NULL,
  retry TEXT NOT NULL,
  concurrency_policy TEXT NOT NULL,
  max_concurrency INTEGER NOT NULL,
  queue_limit INTEGER NOT NULL,
  carry_state INTEGER NOT NULL DEFAULT FALSE,
  objective TEXT NOT NULL DEFAULT '',
  delete_after_completion INTEGER NOT NULL DEFAULT 0,
  acknowledge TEXT NOT NULL DEFAULT '',
  target TEXT NOT NULL,
  target_kind TEXT NOT NULL DEFAULT '',
  target_name TEXT NOT NULL DEFAULT '',
  target_group TEXT NOT NULL DEFAULT '',
  endpoint_concurrency TEXT NOT NULL DEFAULT 'allow',
  certificate_ends_at INTEGER,
  payload TEXT NOT NULL,
  followers TEXT NOT NULL DEFAULT '',
  follows INTEGER NOT NULL DEFAULT 0,
  part_of INTEGER NOT NULL DEFAULT 0,
  trigger_names TEXT NOT NULL,
  trigger_origins TEXT NOT NULL DEFAULT '',
  alert_late_after INTEGER,
  state TEXT NOT NULL DEFAULT 'init',
  secret_versions TEXT NOT NULL DEFAULT '{}',
  completed_at INTEGER,
  revision INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  deleted_at INTEGER,
  UNIQUE (app_id, name)
) STRICT;
CREATE INDEX jobs_app ON jobs (app_id, id) WHERE deleted_at IS NULL;
CREATE INDEX jobs_listed ON jobs (app, name, deleted_at, part_of) WHERE deleted_at IS NULL AND part_of = 0;
CREATE INDEX jobs_called ON jobs (target_name, app, name) WHERE deleted_at IS NULL AND part_of = 0;
CREATE INDEX jobs_paused ON jobs (paused_at) WHERE paused_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX jobs_pause_until ON jobs (pause_until) WHERE pause_until IS NOT NULL;
CREATE INDEX jobs_labels ON jobs (node_labels) WHERE node_labels <> '';
CREATE INDEX jobs_labelled ON jobs (app_id, name) WHERE labels <> '' AND deleted_at IS NULL;
CREATE INDEX jobs_group ON jobs (app_id, target_group, name) WHERE target_group <> '' AND deleted_at IS NULL;
CREATE INDEX jobs_deleted ON jobs (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX jobs_certificate ON jobs (certificate_ends_at) WHERE certificate_ends_at IS NOT NULL;
CREATE INDEX jobs_alert_late ON jobs (id) WHERE alert_late_after IS NOT NULL;
CREATE INDEX jobs_objective ON jobs (app, name) WHERE objective <> '' AND deleted_at IS NULL;
CREATE INDEX jobs_followed ON jobs (id) WHERE follows <> 0;
CREATE INDEX jobs_expired ON jobs (completed_at + delete_after_completion) WHERE delete_after_completion > 0 AND deleted_at IS NULL;

CREATE TABLE followers (
  job_id INTEGER NOT NULL,
  event INTEGER NOT NULL,
  follower_id INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  result INTEGER NOT NULL,
  PRIMARY KEY (job_id, event, follower_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX followers_follower ON followers (follower_id);

CREATE TABLE secrets (
  owner_id INTEGER NOT NULL,
  path TEXT NOT NULL,
  key_id TEXT NOT NULL,
  data_key BLOB NOT NULL,
  ciphertext BLOB NOT NULL,
  PRIMARY KEY (owner_id, path)
) STRICT;

CREATE TABLE endpoint_groups (
  id INTEGER NOT NULL PRIMARY KEY,
  app_id INTEGER NOT NULL REFERENCES apps (id),
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  definition TEXT NOT NULL,
  certificate_ends_at INTEGER,
  by_name INTEGER NOT NULL DEFAULT 0,
  left_at INTEGER,
  secret_versions TEXT NOT NULL DEFAULT '{}',
  revision INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  deleted_at INTEGER,
  removal_requested_at INTEGER,
  UNIQUE (app_id, name)
) STRICT;

CREATE TABLE endpoints (
  group_id INTEGER NOT NULL,
  id TEXT NOT NULL,
  url TEXT NOT NULL,
  weight INTEGER NOT NULL,
  backup INTEGER NOT NULL,
  labels TEXT NOT NULL,
  source TEXT NOT NULL CHECK (source IN ('static', 'registered')),
  draining INTEGER NOT NULL DEFAULT FALSE,
  registered_at INTEGER NOT NULL,
  expire_after INTEGER NOT NULL DEFAULT 0,
  expires_at INTEGER,
  PRIMARY KEY (group_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE triggers (
  id INTEGER NOT NULL PRIMARY KEY,
  job_id INTEGER NOT NULL,
  app_id INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  misfire_after INTEGER NOT NULL,
  anchor_at INTEGER NOT NULL,
  start_at INTEGER,
  end_at INTEGER,
  jitter INTEGER NOT NULL,
  repeat_count INTEGER NOT NULL,
  fired INTEGER NOT NULL,
  counted_from INTEGER,
  enabled INTEGER NOT NULL,
  paused INTEGER NOT NULL,
  pause TEXT,
  paused_at INTEGER,
  pause_until INTEGER,
  job_paused INTEGER NOT NULL,
  delayed INTEGER NOT NULL,
  drift_hour INTEGER NOT NULL,
  name TEXT NOT NULL,
  origin TEXT NOT NULL DEFAULT '',
  expression TEXT NOT NULL,
  dialect TEXT NOT NULL,
  timezone TEXT NOT NULL,
  gap TEXT NOT NULL,
  overlap TEXT NOT NULL,
  calendar TEXT NOT NULL,
  on_excluded TEXT NOT NULL,
  error TEXT NOT NULL,
  node_labels TEXT NOT NULL,
  attempt_timeout INTEGER,
  misfire_policy TEXT,
  catch_up_window INTEGER,
  deleted_at INTEGER
) STRICT;

CREATE INDEX triggers_job ON triggers (job_id);
CREATE INDEX triggers_app ON triggers (app_id, id);
CREATE INDEX triggers_pause_until ON triggers (pause_until) WHERE pause_until IS NOT NULL;
CREATE INDEX triggers_paused ON triggers (paused_at) WHERE paused_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX triggers_error ON triggers (id) WHERE error <> '' AND deleted_at IS NULL;
CREATE INDEX triggers_labels ON triggers (node_labels, id) WHERE node_labels <> '';
CREATE INDEX triggers_deleted ON triggers (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX triggers_calendar ON triggers (app_id, calendar) WHERE calendar <> '' AND deleted_at IS NULL;

CREATE TABLE trigger_clock (
  id INTEGER NOT NULL PRIMARY KEY,
  app_id INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  calendar_revision INTEGER NOT NULL,
  next_fire_time INTEGER,
  due_at INTEGER,
  prev_fire_time INTEGER,
  ended_at INTEGER,
  misfire_after INTEGER NOT NULL,
  attempt_timeout INTEGER,
  off INTEGER NOT NULL,
  delayed INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'complete', 'error')),
  node_labels TEXT NOT NULL
) STRICT;

CREATE INDEX trigger_clock_due ON trigger_clock (due_at, id) WHERE off = 0 AND due_at IS NOT NULL;

CREATE INDEX trigger_clock_unserved ON trigger_clock (due_at, id) WHERE off = 8 AND due_at IS NOT NULL;

CREATE INDEX trigger_clock_delayed ON trigger_clock (id) WHERE delayed AND next_fire_time IS NULL AND state = 'waiting';

CREATE TABLE label_sets (
  node_labels TEXT NOT NULL PRIMARY KEY,
  served INTEGER NOT NULL,
  switched_to INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX label_sets_served ON label_sets (node_labels) WHERE served;
CREATE INDEX label_sets_switched ON label_sets (node_labels) WHERE switched_to IS NOT NULL;

CREATE TABLE claims (
  token INTEGER NOT NULL PRIMARY KEY,
  node INTEGER NOT NULL,
  claimed_at INTEGER NOT NULL,
  fires TEXT NOT NULL -- JSON: [trigger id, scheduled_at, job id, revision] of each
) STRICT;
CREATE INDEX claims_node ON claims (node);

CREATE TABLE live_runs (
  scheduled_at INTEGER NOT NULL,
  trigger_id INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  app_id INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  node INTEGER NOT NULL,
  token INTEGER NOT NULL,
  claimed_at INTEGER,
  started_at INTEGER,
  next_attempt_at INTEGER,
  retry_until INTEGER,
  waits_for INTEGER NOT NULL DEFAULT 0,
  attempt INTEGER NOT NULL,
  failures INTEGER NOT NULL DEFAULT 0,
  http_status INTEGER NOT NULL DEFAULT 0,
  kind INTEGER NOT NULL,
  state TEXT NOT NULL,
  class TEXT NOT NULL DEFAULT '',
  error TEXT NOT NULL DEFAULT '',
  callback_id INTEGER,
  callback TEXT,
  has_input INTEGER NOT NULL DEFAULT FALSE,
  waited TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (scheduled_at, trigger_id, kind)
) STRICT, WITHOUT ROWID;

CREATE INDEX live_runs_node ON live_runs (node, job_id) WHERE state NOT IN ('retrying', 'waiting_callback');
CREATE INDEX live_runs_idle ON live_runs (app_id, scheduled_at + 0, trigger_id, kind)
  WHERE node = 0 AND state NOT IN ('retrying', 'waiting_callback', 'running', 'waiting_shards');
CREATE INDEX live_runs_job ON live_runs (job_id, scheduled_at + 0);
CREATE INDEX live_runs_retrying ON live_runs (next_attempt_at) WHERE state IN ('retrying', 'waiting_callback') AND waits_for = 0;
CREATE INDEX live_runs_retrying_apps ON live_runs (app_id, next_attempt_at, scheduled_at, trigger_id, kind)
  WHERE state IN ('retrying', 'waiting_callback') AND waits_for = 0;
CREATE INDEX live_runs_expiring ON live_runs (retry_until) WHERE state = 'retrying';
CREATE INDEX live_runs_waiting ON live_runs (waits_for, attempt, next_attempt_at) WHERE waits_for <> 0;
CREATE INDEX live_runs_broadcasts ON live_runs (scheduled_at, trigger_id, kind) WHERE state = 'waiting_shards';
CREATE INDEX live_runs_shards ON live_runs (scheduled_at, trigger_id, kind) WHERE kind >= 16;
CREATE INDEX live_runs_awaiting ON live_runs (job_id) WHERE state = 'waiting_callback';
CREATE INDEX live_runs_callback ON live_runs (callback_id) WHERE callback_id IS NOT NULL;
CREATE INDEX live_runs_not_begun ON live_runs (job_id, scheduled_at) WHERE attempt = 0 AND kind = 1;

CREATE TABLE set_aside (
  work TEXT NOT NULL,
  item TEXT NOT NULL,
  app_id INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  scheduled_at INTEGER NOT NULL,
  trigger_id INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  node INTEGER NOT NULL,
  state TEXT NOT NULL,
  tries INTEGER NOT NULL,
  since INTEGER NOT NULL,
  try_at INTEGER NOT NULL,
  problem TEXT NOT NULL,
  PRIMARY KEY (work, item)
) STRICT, WITHOUT ROWID;
CREATE INDEX set_aside_item ON set_aside (item);
CREATE INDEX set_aside_job ON set_aside (job_id);
CREATE INDEX set_aside_try ON set_aside (try_at);

CREATE TABLE host_waits (
  id INTEGER NOT NULL PRIMARY KEY,
  app_id INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  host TEXT NOT NULL,
  pause INTEGER NOT NULL,
  probe_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Rows lie in the order of this key (WITHOUT ROWID), so a record appends and needs no second tree.
-- There are no partitions: retention deletes in small batches, oldest first, from the front of the tree.
CREATE TABLE runs (
  scheduled_at INTEGER NOT NULL,
  trigger_id INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  node INTEGER NOT NULL,
  ended_at INTEGER NOT NULL,
  claimed_ms INTEGER,
  started_ms INTEGER,
  attempt INTEGER NOT NULL,
  http_status INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  state TEXT,
  class TEXT,
  error TEXT,
  waited TEXT,
  PRIMARY KEY (scheduled_at, trigger_id, kind)
) STRICT, WITHOUT ROWID;

CREATE INDEX runs_job ON runs (job_id, scheduled_at);
CREATE INDEX runs_late ON runs (ended_at) WHERE ended_at - scheduled_at >= 86400000;

CREATE INDEX runs_failed ON runs (ended_at) WHERE state IN ('failed', 'timed_out', 'lost');
CREATE INDEX runs_dead ON runs (job_id, scheduled_at, trigger_id, kind) WHERE state IN ('failed', 'timed_out', 'lost');
CREATE INDEX runs_dead_latest ON runs (scheduled_at, trigger_id, kind, job_id, state) WHERE state IN ('failed', 'timed_out', 'lost');

CREATE TABLE pending_ends (
  ended_at INTEGER NOT NULL,
  trigger_id INTEGER NOT NULL,
  scheduled_at INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  app_id INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  started_at INTEGER,
  http_status INTEGER NOT NULL,
  state TEXT NOT NULL,
  class TEXT NOT NULL,
  error TEXT NOT NULL,
  tries INTEGER NOT NULL DEFAULT 0,
  try_at INTEGER NOT NULL DEFAULT 0,
  problem TEXT NOT NULL DEFAULT '',
  judged INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (ended_at, trigger_id, scheduled_at, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX pending_ends_job ON pending_ends (job_id);
CREATE INDEX pending_ends_app ON pending_ends (app_id, try_at, ended_at, trigger_id, scheduled_at, kind);
CREATE INDEX pending_ends_set_aside ON pending_ends (ended_at) WHERE try_at > 0;

CREATE TABLE attempts (
  scheduled_at INTEGER NOT NULL,
  trigger_id INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  node INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at INTEGER NOT NULL,
  http_status INTEGER NOT NULL,
  state TEXT NOT NULL,
  class TEXT NOT NULL,
  error TEXT NOT NULL,
  late_result TEXT,
  PRIMARY KEY (scheduled_at, trigger_id, kind, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE responses (
  scheduled_at INTEGER NOT NULL,
  trigger_id INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  response TEXT NOT NULL,
  PRIMARY KEY (scheduled_at, trigger_id, kind, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE broadcasts (
  scheduled_at INTEGER NOT NULL,
  trigger_id INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  endpoints TEXT NOT NULL,
  PRIMARY KEY (scheduled_at, trigger_id, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_inputs (
  scheduled_at INTEGER NOT NULL,
  trigger_id INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  input TEXT NOT NULL,
  PRIMARY KEY (scheduled_at, trigger_id, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE backfills (
  id INTEGER NOT NULL PRIMARY KEY,
  app_id INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  spec TEXT NOT NULL,
  schedules TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('running', 'paused', 'cancelling', 'cancelled', 'complete')),
  error TEXT NOT NULL DEFAULT '',
  waits TEXT NOT NULL DEFAULT '',
  tries INTEGER NOT NULL DEFAULT 0,
  try_at INTEGER NOT NULL DEFAULT 0,
  total INTEGER NOT NULL,
  queued INTEGER NOT NULL DEFAULT 0,
  skipped INTEGER NOT NULL DEFAULT 0,
  succeeded INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  cancelled INTEGER NOT NULL DEFAULT 0,
  cursor_at INTEGER,
  cursor_trigger INTEGER NOT NULL DEFAULT 0,
  next_at INTEGER NOT NULL DEFAULT 0,
  created_by TEXT NOT NULL,
  traceparent TEXT NOT NULL, -- of the request that asked for it; empty: it had none
  created_at INTEGER NOT NULL,
  ended_at INTEGER
) STRICT;
CREATE UNIQUE INDEX backfills_open ON backfills (job_id) WHERE ended_at IS NULL;
CREATE INDEX backfills_app ON backfills (app_id, id);
CREATE INDEX backfills_ended ON backfills (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE backfill_runs (
  backfill_id INTEGER NOT NULL,
  scheduled_at INTEGER NOT NULL,
  trigger_id INTEGER NOT NULL,
  PRIMARY KEY (backfill_id, scheduled_at, trigger_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE bulk_actions (
  id INTEGER NOT NULL PRIMARY KEY,
  app_id INTEGER NOT NULL,
  spec TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('running', 'cancelled', 'complete')),
  waits TEXT NOT NULL DEFAULT '',
  tries INTEGER NOT NULL DEFAULT 0,
  try_at INTEGER NOT NULL DEFAULT 0,
  total INTEGER NOT NULL,
  more INTEGER NOT NULL,
  done INTEGER NOT NULL DEFAULT 0,
  skipped INTEGER NOT NULL DEFAULT 0,
  problem TEXT NOT NULL DEFAULT '',
  item TEXT NOT NULL DEFAULT '',
  created_by TEXT NOT NULL,
  token_id TEXT NOT NULL,
  address TEXT NOT NULL,
  request_id TEXT NOT NULL,
  traceparent TEXT NOT NULL, -- of the request that asked for it; empty: it had none
  created_at INTEGER NOT NULL,
  ended_at INTEGER
) STRICT;
CREATE INDEX bulk_actions_open ON bulk_actions (id) WHERE ended_at IS NULL;
CREATE INDEX bulk_actions_app ON bulk_actions (app_id, id);
CREATE INDEX bulk_actions_ended ON bulk_actions (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE slots (
  job_id INTEGER NOT NULL,
  scheduled_at INTEGER NOT NULL,
  trigger_id INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  endpoint TEXT NOT NULL,
  node INTEGER NOT NULL,
  token INTEGER NOT NULL,
  since INTEGER NOT NULL,
  PRIMARY KEY (job_id, scheduled_at, trigger_id, kind, endpoint)
) STRICT, WITHOUT ROWID;

CREATE TABLE carried_states (
  job_id INTEGER NOT NULL PRIMARY KEY,
  state TEXT,
  revision INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  actor TEXT NOT NULL DEFAULT '',
  scheduled_at INTEGER,
  trigger_id INTEGER,
  kind INTEGER,
  discarded_scheduled_at INTEGER,
  discarded_trigger_id INTEGER,
  discarded_kind INTEGER
) STRICT;

CREATE TABLE objectives (
  job_id INTEGER NOT NULL PRIMARY KEY,
  within INTEGER NOT NULL,
  counted_from INTEGER NOT NULL,
  checked_to INTEGER NOT NULL,
  pending_after INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE objective_triggers (
  job_id INTEGER NOT NULL,
  trigger_id INTEGER NOT NULL,
  rolled_to INTEGER NOT NULL,
  PRIMARY KEY (job_id, trigger_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE objective_pending (
  job_id INTEGER NOT NULL,
  scheduled_at INTEGER NOT NULL,
  trigger_id INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  PRIMARY KEY (job_id, scheduled_at, trigger_id, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE objective_counts (
  job_id INTEGER NOT NULL,
  minutes INTEGER NOT NULL,
  from_at INTEGER NOT NULL,
  good INTEGER NOT NULL,
  late INTEGER NOT NULL,
  missed INTEGER NOT NULL,
  PRIMARY KEY (job_id, minutes, from_at)
) STRICT, WITHOUT ROWID;
CREATE INDEX objective_counts_bad ON objective_counts (from_at, job_id) WHERE minutes = 5 AND late + missed > 0;

CREATE TABLE run_statistics (
  app_id INTEGER NOT NULL,
  day INTEGER NOT NULL,
  final INTEGER NOT NULL,
  state TEXT NOT NULL,
  runs INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  started INTEGER NOT NULL,
  late_sum INTEGER NOT NULL,
  late_most INTEGER NOT NULL,
  PRIMARY KEY (day, app_id, final, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE app_failures (
  app_id INTEGER NOT NULL PRIMARY KEY,
  ended_at INTEGER NOT NULL,
  scheduled_at INTEGER NOT NULL,
  trigger_id INTEGER NOT NULL,
  kind INTEGER NOT NULL
) STRICT;

CREATE TABLE misfires (
  from_at INTEGER NOT NULL,
  to_at INTEGER NOT NULL,
  trigger_id INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  count INTEGER NOT NULL,
  decision TEXT NOT NULL,
  reason TEXT NOT NULL,
  catch_up INTEGER,
  node INTEGER NOT NULL,
  decided_at INTEGER NOT NULL,
  PRIMARY KEY (from_at, trigger_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX misfires_decided ON misfires (decided_at);
CREATE INDEX misfires_job ON misfires (job_id, from_at);
CREATE INDEX misfires_late ON misfires (decided_at) WHERE decided_at - from_at >= 86400000;

CREATE TABLE nodes (
  id INTEGER NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  version TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('active', 'paused', 'draining', 'dead')),
  apps TEXT NOT NULL,
  labels TEXT NOT NULL,
  zones TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  heartbeat_interval INTEGER NOT NULL DEFAULT 0,
  in_flight INTEGER NOT NULL,
  fires INTEGER NOT NULL,
  lag INTEGER NOT NULL,
  saturated INTEGER NOT NULL DEFAULT FALSE,
  clock_offset INTEGER NOT NULL,
  long_since INTEGER,
  api_addresses TEXT NOT NULL DEFAULT '',
  reach TEXT NOT NULL DEFAULT '{}',
  certificate_ends_at INTEGER,
  empty_at INTEGER,
  heartbeats INTEGER NOT NULL DEFAULT 0,
  paused_by_rollback INTEGER NOT NULL DEFAULT 0,
  deregistered INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE locks (
  name TEXT NOT NULL PRIMARY KEY,
  holder INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  locked_until INTEGER NOT NULL,
  free_at INTEGER NOT NULL,
  cursor INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE calendars (
  app_id INTEGER NOT NULL REFERENCES apps (id),
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  definition TEXT NOT NULL,
  revision INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  removal_requested_at INTEGER,
  deleted_at INTEGER,
  PRIMARY KEY (app_id, name)
) STRICT;

CREATE TABLE alerts (
  id INTEGER NOT NULL PRIMARY KEY,
  app_id INTEGER NOT NULL REFERENCES apps (id),
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  definition TEXT NOT NULL,
  severity INTEGER NOT NULL DEFAULT 1,
  job_id INTEGER NOT NULL,
  muted TEXT,
  revision INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  deleted_at INTEGER,
  UNIQUE (app_id, name)
) STRICT;
CREATE INDEX alerts_severity ON alerts (severity, id);
CREATE INDEX alerts_deleted ON alerts (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE alert_states (
  id INTEGER NOT NULL PRIMARY KEY,
  alert_id INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  condition TEXT NOT NULL,
  firing INTEGER NOT NULL,
  armed INTEGER NOT NULL,
  kept_back INTEGER NOT NULL,
  check_at INTEGER,
  track TEXT NOT NULL
) STRICT;
CREATE INDEX alert_states_job ON alert_states (job_id);
CREATE INDEX alert_states_armed ON alert_states (job_id) WHERE armed;
CREATE INDEX alert_states_alert ON alert_states (alert_id, job_id);
CREATE INDEX alert_states_firing ON alert_states (alert_id) WHERE firing;
CREATE INDEX alert_states_kept_back ON alert_states (alert_id) WHERE kept_back;
CREATE INDEX alert_states_due ON alert_states (check_at) WHERE check_at IS NOT NULL;

CREATE TABLE alert_events (
  app_id INTEGER NOT NULL,
  at INTEGER NOT NULL,
  id INTEGER NOT NULL,
  alert TEXT NOT NULL,
  job TEXT NOT NULL,
  event TEXT NOT NULL,
  PRIMARY KEY (app_id, at, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX alert_events_alert ON alert_events (app_id, alert, at, id);
CREATE INDEX alert_events_job ON alert_events (app_id, job, at, id);

CREATE TABLE trigger_revisions (
  job_id INTEGER NOT NULL,
  id INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  calendar_revision INTEGER NOT NULL,
  from_at INTEGER NOT NULL,
  to_at INTEGER,
  cause TEXT NOT NULL,
  actor TEXT NOT NULL DEFAULT '',
  settled_at INTEGER NOT NULL,
  next_fire_time INTEGER,
  prev_fire_time INTEGER,
  name TEXT NOT NULL,
  expression TEXT NOT NULL,
  dialect TEXT NOT NULL,
  timezone TEXT NOT NULL,
  start_at INTEGER,
  end_at INTEGER,
  repeat_count INTEGER NOT NULL,
  gap TEXT NOT NULL,
  overlap TEXT NOT NULL,
  drift_hour INTEGER NOT NULL,
  calendar TEXT NOT NULL,
  on_excluded TEXT NOT NULL,
  jitter INTEGER NOT NULL,
  misfire_after INTEGER NOT NULL,
  anchor_at INTEGER NOT NULL,
  fired INTEGER NOT NULL DEFAULT 0,
  counted_from INTEGER,
  enabled INTEGER NOT NULL,
  paused INTEGER NOT NULL,
  pause TEXT,
  labels TEXT NOT NULL,
  zones TEXT NOT NULL,
  PRIMARY KEY (job_id, id, revision, calendar_revision, from_at, cause)
) STRICT, WITHOUT ROWID;
CREATE INDEX trigger_revisions_ended ON trigger_revisions (to_at) WHERE to_at IS NOT NULL;

CREATE TABLE calendar_revisions (
  app_id INTEGER NOT NULL,
  calendar_revision INTEGER NOT NULL,
  name TEXT NOT NULL,
  definition TEXT,
  to_at INTEGER,
  PRIMARY KEY (app_id, name, calendar_revision)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_log (
  at INTEGER NOT NULL,
  id INTEGER NOT NULL,
  actor TEXT NOT NULL,
  token_id TEXT NOT NULL DEFAULT '',
  address TEXT NOT NULL DEFAULT '',
  request_id TEXT NOT NULL DEFAULT '',
  action TEXT NOT NULL,
  app TEXT NOT NULL,
  subject TEXT NOT NULL,
  revision INTEGER NOT NULL,
  refused TEXT NOT NULL DEFAULT '',
  before TEXT,
  after TEXT,
  PRIMARY KEY (at, id)
) STRICT;
CREATE INDEX audit_log_app ON audit_log (app, at, id);
CREATE INDEX audit_log_subject ON audit_log (subject, at, id);
CREATE INDEX audit_log_actor ON audit_log (actor, at, id);
CREATE INDEX audit_log_token ON audit_log (token_id, at, id) WHERE token_id <> '';
CREATE INDEX audit_log_refused ON audit_log (at, id) WHERE refused <> '';

CREATE TABLE notifications (
  at INTEGER NOT NULL,
  id INTEGER NOT NULL,
  payload TEXT NOT NULL,
  PRIMARY KEY (at, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE api_tokens (
  id TEXT NOT NULL PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  description TEXT NOT NULL,
  hash TEXT NOT NULL UNIQUE,
  scopes TEXT NOT NULL,
  apps TEXT NOT NULL,
  expires_at INTEGER,
  last_used_at INTEGER,
  rotated_hash TEXT UNIQUE,
  rotated_until INTEGER,
  revision INTEGER NOT NULL DEFAULT 1,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE sessions (
  id TEXT NOT NULL PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  token_id TEXT NOT NULL,
  identity TEXT,
  rules TEXT NOT NULL,
  apps TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  used_at INTEGER NOT NULL,
  ends_at INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_token ON sessions (token_id, used_at, id);
CREATE INDEX sessions_used ON sessions (used_at);

-- +goose Down
DROP TABLE installation;
DROP TABLE alert_events;
DROP TABLE alert_states;
DROP TABLE alerts;
DROP TABLE notifications;
DROP TABLE sessions;
DROP TABLE api_tokens;
DROP TABLE secrets;
DROP TABLE followers;
DROP TABLE pending_ends;
DROP TABLE endpoints;
DROP TABLE endpoint_groups;
DROP TABLE audit_log;
DROP TABLE trigger_revisions;
DROP TABLE calendar_revisions;
DROP TABLE calendars;
DROP TABLE locks;
DROP TABLE nodes;
DROP TABLE zone_data;
DROP TABLE objective_counts;
DROP TABLE objective_pending;
DROP TABLE objective_triggers;
DROP TABLE objectives;
DROP TABLE carried_states;
DROP TABLE misfires;
DROP TABLE app_failures;
DROP TABLE bulk_actions;
DROP TABLE backfill_runs;
DROP TABLE backfills;
DROP TABLE run_inputs;
DROP TABLE broadcasts;
DROP TABLE responses;
DROP TABLE slots;
DROP TABLE attempts;
DROP TABLE runs;
DROP TABLE set_aside;
DROP TABLE host_waits;
DROP TABLE live_runs;
DROP TABLE claims;
DROP TABLE label_sets;
DROP TABLE trigger_clock;
DROP TABLE triggers;
DROP TABLE jobs;
DROP TABLE app_pauses;
DROP TABLE apps;
