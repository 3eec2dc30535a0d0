-- +goose Up

-- The random name of this database, in every event id it sends.
CREATE TABLE installation (
  id       TEXT   NOT NULL,
  audit_key TEXT  NOT NULL,               -- random; with it the audit log hashes the values of secrets
  callback_key TEXT NOT NULL DEFAULT '',  -- random; with it the tokens of callbacks are made. Empty: drawn when needed, or in secrets
  zones    TEXT   NOT NULL DEFAULT '',    -- the time zone database by which fire times were worked out
  zones_checked_at BIGINT NOT NULL DEFAULT 0,     -- when that was last checked
  database_identity TEXT   NOT NULL DEFAULT '',    -- which database nodes last used: the server, or the file
  -- A rollback that is not settled: when and by what it was noticed, what the operator chose and when.
  rolled_back_at     BIGINT,
  rollback_reason  TEXT NOT NULL DEFAULT '',
  rollback_choice  TEXT NOT NULL DEFAULT '',
  rollback_skip_to BIGINT NOT NULL DEFAULT 0,
  -- When the latest rollback was settled, later each time. Nodes ignore what they knew before it.
  rollback_settled_at BIGINT NOT NULL DEFAULT 0
);
INSERT INTO installation (id, audit_key) VALUES (replace(CAST(gen_random_uuid() AS TEXT), '-', ''),
  replace(CAST(gen_random_uuid() AS TEXT) || CAST(gen_random_uuid() AS TEXT), '-', ''));

-- Apps, jobs and triggers are deleted softly: the ledger keeps their names, and a definition that is
-- declared again under a name continues its revision. Ids are hashes of the names.
-- The time zone data that all nodes compute with; no row: each with its own.
CREATE TABLE zone_data (
  one     INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
  sum     TEXT   NOT NULL, -- SHA-256 of the archive, in hex
  release TEXT   NOT NULL,
  archive BYTEA  NOT NULL,
  set_at  BIGINT NOT NULL,
  set_by  TEXT   NOT NULL
);

CREATE TABLE apps (
  id                BIGINT  NOT NULL PRIMARY KEY,
  name              TEXT    NOT NULL UNIQUE,
  description       TEXT    NOT NULL,
  enabled           BOOLEAN NOT NULL,     -- whether nodes serve it: its owner wants it, and it is not suspended
  owner_enabled     BOOLEAN NOT NULL DEFAULT TRUE, -- what its owner wants; schedulers never write either
  defaults          TEXT,                 -- JSON, what its jobs get where they leave it out; NULL: nothing
  bounds            TEXT    NOT NULL DEFAULT '{}', -- JSON, what operators set; what is missing has its default
  external_id       TEXT    NOT NULL DEFAULT '', -- with which nodes assume AWS roles for it
  longer_names      TEXT    NOT NULL DEFAULT '', -- of the apps whose names begin with this one's and _ or -, with _ for -; NAME,...
  retention         BIGINT  NOT NULL,     -- milliseconds that the app's history is kept
  history_from      BIGINT  NOT NULL DEFAULT 0, -- earlier history was removed under a shorter retention
  sweep_from        BIGINT  NOT NULL DEFAULT 0, -- the clean-up has removed what this app does not keep from before
  sweep_to          BIGINT  NOT NULL DEFAULT 0, -- and goes on up to here; 0: it is at another app
  sweep_after       TEXT    NOT NULL DEFAULT '', -- in the days from sweep_from on, name of the last job that it is done with
  revision          BIGINT  NOT NULL,
  calendar_revision BIGINT  NOT NULL DEFAULT 0, -- counts the changes of all its calendars
  installation      TEXT    NOT NULL DEFAULT '', -- the id in the event ids of an app that came from elsewhere; empty: this one's
  salt              BYTEA   NOT NULL DEFAULT '', -- secret, in ids of events, of runs that follow others and of notifications; empty: none
  switched_to       BIGINT,               -- enabled was changed, and the clocks up to this trigger id follow it; NULL: all do
  alerts_swept_to   TEXT,                 -- its alerts were changed, and jobs up to this name follow them; NULL: all do
  paused_to         BIGINT,               -- its pauses were changed, and the jobs up to this id follow them; NULL: all do
  importing_until   BIGINT,               -- an import writes it in parts, and is cut off if this passes before its next one; NULL: none does
  created_at        BIGINT  NOT NULL,
  updated_at        BIGINT  NOT NULL,
  deleted_at        BIGINT
);
CREATE INDEX apps_switched ON apps (id) WHERE switched_to IS NOT NULL;
CREATE INDEX apps_alerts_swept ON apps (id) WHERE alerts_swept_to IS NOT NULL;
CREATE INDEX apps_pausing ON apps (id) WHERE paused_to IS NOT NULL;
CREATE INDEX apps_importing ON apps (importing_until) WHERE importing_until IS NOT NULL;

-- The pauses of apps. One that has ended stays as long as any history, so that explain knows it.
CREATE TABLE app_pauses (
  app_id    BIGINT NOT NULL,
  id        TEXT   NOT NULL,              -- random
  labels    TEXT   NOT NULL,              -- name=value,...: what a job must have to be held; empty: all jobs are
  reason    TEXT   NOT NULL,
  paused_by TEXT   NOT NULL,
  paused_at BIGINT NOT NULL,
  until_at  BIGINT,                       -- when the handler ends it; NULL: somebody has to
  ended_at  BIGINT,                       -- NULL: it holds
  ended_by  TEXT   NOT NULL DEFAULT '',
  PRIMARY KEY (app_id, id)
);
CREATE INDEX app_pauses_app ON app_pauses (app_id, ended_at);
CREATE INDEX app_pauses_held ON app_pauses (paused_at) WHERE ended_at IS NULL;
CREATE INDEX app_pauses_until ON app_pauses (until_at) WHERE until_at IS NOT NULL AND ended_at IS NULL;
CREATE INDEX app_pauses_ended ON app_pauses (ended_at) WHERE ended_at IS NOT NULL;

-- How much of its quotas an app uses. Changes of its jobs count in their transactions, under the lock of the app;
-- requests for manual runs lock nothing else, and what follows runs is counted last in its transaction.
CREATE TABLE app_usage (
  app_id       BIGINT NOT NULL PRIMARY KEY,
  jobs         BIGINT NOT NULL DEFAULT 0,
  triggers     BIGINT NOT NULL DEFAULT 0,
  minute       BIGINT NOT NULL DEFAULT 0, -- when the minute began in which manual_runs were requested
  manual_runs  BIGINT NOT NULL DEFAULT 0,
  waiting_runs BIGINT NOT NULL DEFAULT 0, -- when they were counted, and those requested or queued since
  counted_at   BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Bytes of responses, and of what runs were given, that were stored for an app, by the UTC day on which nodes reported them, each its own, every
-- handler interval. An estimate: what was stored on a day goes with the retention of the app.
CREATE TABLE app_bytes (
  app_id BIGINT NOT NULL,
  day    BIGINT NOT NULL,
  bytes  BIGINT NOT NULL,
  PRIMARY KEY (app_id, day)
) WITH (fillfactor = 50);

CREATE TABLE jobs (
  id            BIGINT  NOT NULL PRIMARY KEY,
  app_id        BIGINT  NOT NULL REFERENCES apps (id),
  app           TEXT    NOT NULL DEFAULT '', -- copy of apps.name, for lists over all apps
  name          TEXT    NOT NULL,
  origin        TEXT    NOT NULL DEFAULT '', -- what the id, event ids and secrets follow from, if it is not the name
  description   TEXT    NOT NULL,
  runbook_url   TEXT    NOT NULL DEFAULT '', -- a page that says what to do when it fails; empty: none
  enabled       BOOLEAN NOT NULL,
  paused        BOOLEAN NOT NULL,         -- an operator's wish; schedulers never write it
  pause         TEXT,                     -- JSON: by whom, when and why; NULL: it is not paused
  paused_at     BIGINT,                   -- since when it is paused; NULL: it is not
  pause_until   BIGINT,                   -- when the handler ends that pause; NULL: it does not
  app_paused    BOOLEAN NOT NULL DEFAULT FALSE, -- a pause of its app holds it
  priority      INTEGER NOT NULL,         -- higher goes first within the app
  labels        TEXT    NOT NULL DEFAULT '', -- name=value,...: for people
  node_labels   TEXT    NOT NULL,         -- name=value,...: what a node must have
  delivery      TEXT    NOT NULL,
  retry         TEXT    NOT NULL,         -- JSON
  concurrency_policy TEXT NOT NULL,
  max_concurrency INTEGER NOT NULL,       -- 0: as the policy has it
  queue_limit   INTEGER NOT NULL,
  carry_state   BOOLEAN NOT NULL DEFAULT FALSE, -- runs get and return a state; see carried_states
  objective     TEXT    NOT NULL DEFAULT '', -- JSON; empty: none
  delete_after_completion BIGINT NOT NULL DEFAULT 0, -- milliseconds; 0: never
  acknowledge   TEXT    NOT NULL DEFAULT '', -- codes of warnings that are meant, with commas between
  target        TEXT    NOT NULL,         -- JSON
  target_kind   TEXT    NOT NULL DEFAULT '', -- of target, and its name as summaries show it
  target_name   TEXT    NOT NULL DEFAULT '',
  target_group  TEXT    NOT NULL DEFAULT '', -- the group that target names; empty: none
  endpoint_concurrency TEXT NOT NULL DEFAULT 'allow', -- of target
  certificate_ends_at BIGINT,             -- when the first client certificate of its own targets ends; NULL: it has none
  payload       TEXT    NOT NULL,         -- JSON; empty: none
  followers     TEXT    NOT NULL DEFAULT '', -- JSON: on_success, on_failure and on_misfire; empty: nothing follows
  follows       INTEGER NOT NULL DEFAULT 0, -- which events leave a row in pending_ends, as a sum: 1 success, 2 failure, 4 misfire, 8 alerts
  part_of       BIGINT  NOT NULL DEFAULT 0, -- the job or alert whose deliveries this one makes; nobody else sees it. 0: it is a job of its own
  trigger_names TEXT    NOT NULL,         -- JSON; their ids follow from the names, or from
  trigger_origins TEXT  NOT NULL DEFAULT '', -- JSON: the origins of those that have one, by name; empty: none has
  alert_late_after BIGINT,                -- milliseconds: the least late_after of its alerts; NULL: none has one
  state         TEXT    NOT NULL DEFAULT 'init', -- for people: the roll-up of triggers and live runs
  secret_versions TEXT  NOT NULL DEFAULT '{}', -- JSON: of each stored secret, by its path; a row of secrets opens with its own only
  completed_at  BIGINT,                   -- when the state became complete, which it still is
  revision      BIGINT  NOT NULL,
  created_at    BIGINT  NOT NULL,
  updated_at    BIGINT  NOT NULL,
  deleted_at    BIGINT,
  UNIQUE (app_id, name)
);
CREATE INDEX jobs_app ON jobs (app_id, id) WHERE deleted_at IS NULL;
-- What people list over all apps, with all that a search by name needs, and by what jobs call. The roll-up, which is written more often, is in no index.
CREATE INDEX jobs_listed ON jobs (app, name, deleted_at, part_of, id) WHERE deleted_at IS NULL AND part_of = 0;
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
CREATE INDEX jobs_expired ON jobs ((completed_at + delete_after_completion)) WHERE delete_after_completion > 0 AND deleted_at IS NULL;

-- What follows an event of a job, as jobs.followers says it: runs of other jobs, and of the one that makes the delivery.
CREATE TABLE followers (
  job_id      BIGINT  NOT NULL,
  event       INTEGER NOT NULL,           -- as in jobs.follows
  follower_id BIGINT  NOT NULL,           -- a job
  kind        INTEGER NOT NULL,           -- of its runs: 4 chain, 7 follow
  result      BOOLEAN NOT NULL,           -- its runs get what they follow as payload; otherwise that of their job
  PRIMARY KEY (job_id, event, follower_id)
);
CREATE INDEX followers_follower ON followers (follower_id);

-- Values of secrets in targets and groups, encrypted: each by a data key of its own, which is encrypted by
-- the key of that id. No key is in any database.
CREATE TABLE secrets (
  owner_id   BIGINT NOT NULL,             -- the job, or the group; 0: the installation
  path       TEXT   NOT NULL,             -- JSON pointer in the target of the job, or in the group
  key_id     TEXT   NOT NULL,
  data_key   BYTEA  NOT NULL,
  ciphertext BYTEA  NOT NULL,
  PRIMARY KEY (owner_id, path)
);

-- Fleets of workers. Deleted softly, so that a name's revision goes on.
CREATE TABLE endpoint_groups (
  id              BIGINT NOT NULL PRIMARY KEY,
  app_id          BIGINT NOT NULL REFERENCES apps (id),
  name            TEXT   NOT NULL,
  description     TEXT   NOT NULL,
  definition      TEXT   NOT NULL,             -- JSON: all else that was declared
  certificate_ends_at BIGINT,                  -- as in jobs
  by_name         BOOLEAN NOT NULL DEFAULT FALSE, -- names of DNS stand for endpoints, too
  left_at         BIGINT,                      -- when the latest endpoint that had registered expired or left; NULL: none has
  secret_versions TEXT   NOT NULL DEFAULT '{}', -- as that of jobs
  revision        BIGINT NOT NULL,
  created_at      BIGINT NOT NULL,
  updated_at      BIGINT NOT NULL,
  deleted_at      BIGINT,
  removal_requested_at BIGINT,                 -- as in calendars
  UNIQUE (app_id, name)
);

-- The endpoints that groups have, those that groups declare too. A heartbeat writes expires_at of one row. No index has that
-- column and half of each page is free, so the new version of the row stays where the old one was and no index is written.
-- What has expired is found by reading the table, which one node does in a handler interval.
CREATE TABLE endpoints (
  group_id      BIGINT  NOT NULL,
  id            TEXT    NOT NULL,
  url           TEXT    NOT NULL,
  weight        INTEGER NOT NULL,
  backup        BOOLEAN NOT NULL,
  labels        TEXT    NOT NULL,             -- NAME=VALUE,...
  source        TEXT    NOT NULL CHECK (source IN ('static', 'registered')),
  draining      BOOLEAN NOT NULL DEFAULT FALSE, -- an operator wants it
  registered_at BIGINT  NOT NULL,
  expire_after  BIGINT  NOT NULL DEFAULT 0,   -- milliseconds that a registration lasts: that of the group
  expires_at    BIGINT,                       -- NULL: never
  PRIMARY KEY (group_id, id)
) WITH (fillfactor = 50);

-- What was declared of a trigger, and what a change of it writes. No fire writes here; what moves with
-- each fire is in trigger_clock, in a row of the same id.
CREATE TABLE triggers (
  id                BIGINT   NOT NULL PRIMARY KEY,
  job_id            BIGINT   NOT NULL,
  app_id            BIGINT   NOT NULL,
  revision          BIGINT   NOT NULL,    -- the job's
  misfire_after     BIGINT   NOT NULL,    -- milliseconds
  anchor_at         BIGINT   NOT NULL,
  start_at          BIGINT,
  end_at            BIGINT,
  jitter            BIGINT   NOT NULL,    -- milliseconds
  repeat_count      INTEGER  NOT NULL,
  fired             INTEGER  NOT NULL,    -- runs of a fixed delay that have ended, or what counted_from says
  counted_from      BIGINT,               -- when so many of repeat_count were used up; NULL: they are counted from anchor_at
  enabled           BOOLEAN  NOT NULL,
  paused            BOOLEAN  NOT NULL,    -- an operator's wish; schedulers never write it
  pause             TEXT,                 -- JSON: by whom, when and why; NULL: it is not paused
  paused_at         BIGINT,               -- as in jobs
  pause_until       BIGINT,               -- as in jobs
  job_paused        BOOLEAN  NOT NULL,    -- copy of jobs.paused
  delayed           BOOLEAN  NOT NULL,    -- a fixed delay: the end of its run schedules the next fire, not a claim
  drift_hour        BOOLEAN  NOT NULL,
  name              TEXT     NOT NULL,
  origin            TEXT     NOT NULL DEFAULT '', -- as in jobs
  expression        TEXT     NOT NULL,
  dialect           TEXT     NOT NULL,
  timezone          TEXT     NOT NULL,
  gap               TEXT     NOT NULL,
  overlap           TEXT     NOT NULL,
  calendar          TEXT     NOT NULL,    -- name of a calendar of the app; empty: none
  on_excluded       TEXT     NOT NULL,
  error             TEXT     NOT NULL,    -- why the state of its clock is error
  node_labels       TEXT     NOT NULL,    -- copy of the job's
  attempt_timeout   BIGINT,               -- copy of the job's, in milliseconds; NULL: 30 s, as of most webhooks
  misfire_policy    TEXT,                 -- NULL: fire_once
  catch_up_window   BIGINT,               -- milliseconds; NULL: the longest there is
  deleted_at        BIGINT
);
CREATE INDEX triggers_job ON triggers (job_id);
CREATE INDEX triggers_app ON triggers (app_id, id);
CREATE INDEX triggers_pause_until ON triggers (pause_until) WHERE pause_until IS NOT NULL;
CREATE INDEX triggers_paused ON triggers (paused_at) WHERE paused_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX triggers_error ON triggers (id) WHERE error <> '' AND deleted_at IS NULL;
CREATE INDEX triggers_labels ON triggers (node_labels, id) WHERE node_labels <> '';
CREATE INDEX triggers_deleted ON triggers (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX triggers_calendar ON triggers (app_id, calendar) WHERE calendar <> '' AND deleted_at IS NULL;

-- HOT. The part of a trigger that each fire rewrites, and what a poll or a claim compares. Poll and claim
-- read nothing else of a trigger: a node asks for the rest of a row, in triggers, when it does not know the
-- revision.
--
-- off says why the trigger does not fire, as a sum: 1 its app is disabled, 2 it is paused, 4 its job is
-- paused, 8 no live node has the labels that its job requires, 16 it is in state error, 32 a pause of its app
-- holds its job. Whatever is off is not in trigger_clock_due, so that it costs a poll nothing, however much of it
-- there is and for however long.
-- The index ends in the id, and ids are hashes: a node's share of all triggers is a range of ids, which the
-- scan checks in the index, so that it visits only rows that are the node's.
-- Fillfactor 70: the new version of a row finds room on its page.
CREATE TABLE trigger_clock (
  id                BIGINT   NOT NULL PRIMARY KEY, -- the trigger's
  app_id            BIGINT   NOT NULL,
  revision          BIGINT   NOT NULL,    -- the job's; in the claim's key
  calendar_revision BIGINT   NOT NULL,    -- the app's when next_fire_time was worked out; in the claim's key
  next_fire_time    BIGINT,               -- NULL: none, as when disabled, complete, or a fixed delay that runs
  due_at            BIGINT,               -- next_fire_time, later by the jitter
  prev_fire_time    BIGINT,
  ended_at          BIGINT,               -- of a fixed delay: when the run of prev_fire_time ended or was skipped; NULL: it has not
  misfire_after     BIGINT   NOT NULL,    -- milliseconds, as triggers has it
  attempt_timeout   BIGINT,               -- as triggers has it
  off               SMALLINT NOT NULL,
  delayed           BOOLEAN  NOT NULL,
  state             TEXT     NOT NULL CHECK (state IN ('waiting', 'complete', 'error')),
  node_labels       TEXT     NOT NULL     -- as triggers has it
) WITH (fillfactor = 70);
CREATE INDEX trigger_clock_due ON trigger_clock (due_at, id) WHERE off = 0 AND due_at IS NOT NULL;
-- The fires that wait for a node with the labels of their job, for those that look for what is late.
CREATE INDEX trigger_clock_unserved ON trigger_clock (due_at, id) WHERE off = 8 AND due_at IS NOT NULL;
-- The fixed delays whose run is in flight, or has ended and has no next fire yet.
CREATE INDEX trigger_clock_delayed ON trigger_clock (id) WHERE delayed AND next_fire_time IS NULL AND state = 'waiting';

-- The sets of labels that jobs require, and whether a live node has them.
CREATE TABLE label_sets (
  node_labels TEXT    NOT NULL PRIMARY KEY,
  served      BOOLEAN NOT NULL,
  switched_to BIGINT                -- as in apps: the clocks up to this trigger id follow served; NULL: all do
);
CREATE INDEX label_sets_served ON label_sets (node_labels) WHERE served;
CREATE INDEX label_sets_switched ON label_sets (node_labels) WHERE switched_to IS NOT NULL;

-- HOT. One row per claim: the fires that a node has won by one statement, in their first attempt. The row goes
-- when the last of them has entered runs or live_runs. What a claim holds is what its arrays list, without what is
-- in those tables. The row is also the fence of its runs: a record of one of them locks it, and a node that
-- takes a claim from another deletes it.
CREATE TABLE claims (
  token        BIGINT   NOT NULL PRIMARY KEY,
  node         BIGINT   NOT NULL,
  claimed_at   BIGINT   NOT NULL,
  trigger_ids  BIGINT[] NOT NULL,
  scheduled_at BIGINT[] NOT NULL,
  job_ids      BIGINT[] NOT NULL,
  revisions    BIGINT[] NOT NULL          -- the jobs' when claimed
);
-- What a dead node has left is found by it, without a look at the claims of others.
CREATE INDEX claims_node ON claims (node);

-- The runs that are not over and not in a claim: manual ones, catch-ups, backfills and what follows a run, those that wait for a slot, for a
-- host or for their next attempt, those of jobs that bound their concurrency or want a request at most once, of fixed
-- delays, and what was taken from a dead node. Small: its size is that of the work in flight. A row is also
-- the latest attempt of its run; an earlier attempt moves to attempts when the next begins.
-- The retrying runs and those that wait for a callback, of which there may be a million, keep apart by their indexes: none
-- of them is in live_runs_node. They have no token, because no node holds them.
-- The sum in live_runs_job keeps PostgreSQL from looking there for a run by its key, when it thinks that the table is
-- empty.
CREATE TABLE live_runs (
  scheduled_at BIGINT   NOT NULL,
  trigger_id   BIGINT   NOT NULL,         -- the job's id for a manual run; a hash for a run that follows another or tells of an alert
  job_id       BIGINT   NOT NULL,
  app_id       BIGINT   NOT NULL,         -- the job's: runs are adopted by turns of apps
  revision     BIGINT   NOT NULL,         -- of the job when claimed, requested, adopted or retried; negative: adopted after its deletion
  node         BIGINT   NOT NULL,         -- 0: no node works on it; -1: it waits for a slot; -2: a shard that waits for its parent; -3: it is set aside
  token        BIGINT   NOT NULL,         -- fence; 0: no node may record
  claimed_at   BIGINT,
  started_at   BIGINT,
  next_attempt_at BIGINT,                 -- of a retrying run; of one that waits for a callback, its deadline
  retry_until  BIGINT,                    -- when a run that failed or was deferred is given up
  waits_for    BIGINT   NOT NULL DEFAULT 0, -- of a retrying run: what it waits for (host_waits), until next_attempt_at; 0: nothing
  attempt      INTEGER  NOT NULL,
  failures     INTEGER  NOT NULL DEFAULT 0, -- attempts that count against the job's retries
  http_status  SMALLINT NOT NULL DEFAULT 0,
  kind         SMALLINT NOT NULL,         -- as in run ids; of a shard, that of its parent and 16 * (index + 1)
  state        TEXT     NOT NULL,
  class        TEXT     NOT NULL DEFAULT '',
  error        TEXT     NOT NULL DEFAULT '',
  -- Of a run whose target accepted the attempt: by which number the target names it, NULL: none, and JSON of what is known.
  -- Until the end of the attempt is recorded, they stay, also while a node has the run to record it.
  callback_id  BIGINT,
  callback     TEXT,
  has_input    BOOLEAN  NOT NULL DEFAULT FALSE, -- run_inputs has a row of it; of a shard, of its parent
  waited       TEXT     NOT NULL DEFAULT '', -- what it last waited for before its first attempt: slot, or a class; empty: nothing
  PRIMARY KEY (scheduled_at, trigger_id, kind)
);
CREATE INDEX live_runs_node ON live_runs (node, job_id) WHERE state NOT IN ('retrying', 'waiting_callback');
-- What no node works on, by turns of apps. What a claim inserts has no entry.
CREATE INDEX live_runs_idle ON live_runs (app_id, (scheduled_at + 0), trigger_id, kind)
  WHERE node = 0 AND state NOT IN ('retrying', 'waiting_callback', 'running', 'waiting_shards');
CREATE INDEX live_runs_job ON live_runs (job_id, (scheduled_at + 0));
CREATE INDEX live_runs_retrying ON live_runs (next_attempt_at) WHERE state IN ('retrying', 'waiting_callback') AND waits_for = 0;
-- The same by turns of apps, for when more are due than one look finds.
CREATE INDEX live_runs_retrying_apps ON live_runs (app_id, next_attempt_at, scheduled_at, trigger_id, kind)
  WHERE state IN ('retrying', 'waiting_callback') AND waits_for = 0;
CREATE INDEX live_runs_expiring ON live_runs (retry_until) WHERE state = 'retrying';
CREATE INDEX live_runs_waiting ON live_runs (waits_for, attempt, next_attempt_at) WHERE waits_for <> 0;
-- Broadcasts that wait for their shards, and the shards. No other run has an entry.
CREATE INDEX live_runs_broadcasts ON live_runs (scheduled_at, trigger_id, kind) WHERE state = 'waiting_shards';
CREATE INDEX live_runs_shards ON live_runs (scheduled_at, trigger_id, kind) WHERE kind >= 16;
CREATE INDEX live_runs_awaiting ON live_runs (job_id) WHERE state = 'waiting_callback';
CREATE INDEX live_runs_callback ON live_runs (callback_id) WHERE callback_id IS NOT NULL;
-- Fires that wait for their first attempt, which alerts may be about.
CREATE INDEX live_runs_not_begun ON live_runs (job_id, scheduled_at) WHERE attempt = 0 AND kind = 1;

-- The rows that work in batches goes on without, because a statement failed on what is stored in them; see dispatcher.Work.
CREATE TABLE set_aside (
  work         TEXT     NOT NULL,
  item         TEXT     NOT NULL,         -- the key of the row; of a run its id
  app_id       BIGINT   NOT NULL,         -- 0: of none
  job_id       BIGINT   NOT NULL,         -- 0: of none
  scheduled_at BIGINT   NOT NULL,         -- the key of a run, as in live_runs; its kind is 0 for other rows
  trigger_id   BIGINT   NOT NULL,
  kind         SMALLINT NOT NULL,
  node         BIGINT   NOT NULL,         -- where the run was, and its state: the run goes back to them
  state        TEXT     NOT NULL,
  tries        INTEGER  NOT NULL,
  since        BIGINT   NOT NULL,
  try_at       BIGINT   NOT NULL,         -- when it is tried again
  problem      TEXT     NOT NULL,         -- why it failed last
  PRIMARY KEY (work, item)
);
CREATE INDEX set_aside_item ON set_aside (item);
CREATE INDEX set_aside_job ON set_aside (job_id);
CREATE INDEX set_aside_try ON set_aside (try_at);

-- The jobs whose runs wait for the job's host, because its circuit does not let them through: a row while there
-- are any. Jobs wait apart: what fails for a reason of one job's own does not keep the others, and the probes
-- of a host that is down rotate over its jobs by probe_at.
CREATE TABLE host_waits (
  id       BIGINT NOT NULL PRIMARY KEY,   -- hash of app, job and host
  app_id   BIGINT NOT NULL,
  job_id   BIGINT NOT NULL,
  host     TEXT   NOT NULL,
  pause    BIGINT NOT NULL,               -- milliseconds between probes, doubled by each; 0: it responded, all may go
  probe_at BIGINT NOT NULL                -- when the next node may let a run through
);

-- HOT. The history: the runs that are over, each inserted once, as it ends, and never changed by a fire. What most
-- rows have in common is NULL, which takes no room.
--
-- Primary key: one run for each trigger, instant and kind. The compare-and-swap of the clock guards the claim; this
-- stands behind it. It is in an order that appends, and finds a run by its id. No foreign key to triggers: it
-- would lock a row per fire, and a manual run has the job's id there.
--
-- Partitions: one per UTC day of the scheduled instant, runs_20260131, made days ahead by the clean-up and
-- dropped by it once retention has passed; no row is deleted one by one then. What has ended a day or more after its
-- instant is found by runs_late, and kept from its end on: it moves to runs_default before its day is dropped. A
-- day that was not made in time goes there, too. On a database without partitions a line that ends in "plain" stands
-- as that comment has it. No poll, claim, retry, adoption or record looks into a day
-- besides those it inserts into.
CREATE TABLE runs (
  scheduled_at BIGINT   NOT NULL,
  trigger_id   BIGINT   NOT NULL,         -- the job's id for a manual run
  job_id       BIGINT   NOT NULL,
  revision     BIGINT   NOT NULL,         -- of the job when claimed, requested, adopted or retried; negative: adopted after its deletion
  node         BIGINT   NOT NULL,         -- of the latest attempt; 0: none
  ended_at     BIGINT   NOT NULL,
  claimed_ms   INTEGER,                   -- milliseconds before ended_at; NULL: never, or longer ago than fits
  started_ms   INTEGER,                   -- the same
  attempt      INTEGER  NOT NULL,
  http_status  SMALLINT NOT NULL,
  kind         SMALLINT NOT NULL,         -- as in run ids
  state        TEXT,                      -- NULL: succeeded
  class        TEXT,                      -- NULL: none
  error        TEXT,                      -- NULL: none
  waited       TEXT,                      -- as in live_runs; NULL: it did not wait
  PRIMARY KEY (scheduled_at, trigger_id, kind)
) PARTITION BY RANGE (scheduled_at); -- plain: );
CREATE TABLE runs_default PARTITION OF runs DEFAULT; -- plain:
CREATE INDEX runs_job ON runs (job_id, scheduled_at);
CREATE INDEX runs_late ON runs (ended_at) WHERE ended_at - scheduled_at >= 86400000;

-- Dead letters, which no other run pays for: those of a job, and the latest of all jobs, by their ends
-- and by their scheduled times.
CREATE INDEX runs_failed ON runs (ended_at) WHERE state IN ('failed', 'timed_out', 'lost');
CREATE INDEX runs_dead ON runs (job_id, scheduled_at, trigger_id, kind) WHERE state IN ('failed', 'timed_out', 'lost');
CREATE INDEX runs_dead_latest ON runs (scheduled_at, trigger_id, kind, job_id, state) WHERE state IN ('failed', 'timed_out', 'lost');

-- What ended, or was missed, and has yet to be followed: a row from the statement that inserted into runs or misfires, until
-- the transaction that queues what follows. Only jobs with jobs.follows have rows.
CREATE TABLE pending_ends (
  ended_at     BIGINT  NOT NULL,          -- of missed fires: when it was decided about them
  trigger_id   BIGINT  NOT NULL,
  scheduled_at BIGINT  NOT NULL,          -- of missed fires: the first
  kind         INTEGER NOT NULL,          -- 0: fires were missed; see misfires
  job_id       BIGINT  NOT NULL,
  app_id       BIGINT  NOT NULL,          -- the job's: ends are followed by turns of apps
  attempt      INTEGER NOT NULL,
  started_at   BIGINT,
  http_status  INTEGER NOT NULL,
  state        TEXT    NOT NULL,
  class        TEXT    NOT NULL,
  error        TEXT    NOT NULL,
  tries        INTEGER NOT NULL DEFAULT 0, -- how often it could not be followed
  try_at       BIGINT  NOT NULL DEFAULT 0, -- it is set aside until then; 0: it is not
  problem      TEXT    NOT NULL DEFAULT '', -- why it could not be followed; empty: nobody has tried, or it is not set aside
  judged       BOOLEAN NOT NULL DEFAULT FALSE, -- alerts know of it, and only what follows it is left to be queued
  PRIMARY KEY (ended_at, trigger_id, scheduled_at, kind)
);
CREATE INDEX pending_ends_job ON pending_ends (job_id);
CREATE INDEX pending_ends_app ON pending_ends (app_id, try_at, ended_at, trigger_id, scheduled_at, kind);
CREATE INDEX pending_ends_set_aside ON pending_ends (ended_at) WHERE try_at > 0;

-- The attempts of a run that are over, except the latest, which the row of the run holds. Their
-- partitions are those of runs.
CREATE TABLE attempts (
  scheduled_at BIGINT   NOT NULL,
  trigger_id   BIGINT   NOT NULL,
  kind         SMALLINT NOT NULL,
  attempt      INTEGER  NOT NULL,
  node         BIGINT   NOT NULL,
  started_at   BIGINT   NOT NULL,
  ended_at     BIGINT   NOT NULL,
  http_status  INTEGER  NOT NULL,
  state        TEXT     NOT NULL,
  class        TEXT     NOT NULL,
  error        TEXT     NOT NULL,
  late_result  TEXT,                      -- JSON: the result that came after the run had been taken away
  PRIMARY KEY (scheduled_at, trigger_id, kind, attempt)
) PARTITION BY RANGE (scheduled_at); -- plain: );
CREATE TABLE attempts_default PARTITION OF attempts DEFAULT; -- plain:

-- The responses to attempts, where there is anything to keep; see run.Response. They are apart
-- from the hot rows, so that a fire with nothing to keep costs no more. Partitions as those of runs.
CREATE TABLE responses (
  scheduled_at BIGINT   NOT NULL,
  trigger_id   BIGINT   NOT NULL,
  kind         SMALLINT NOT NULL,
  attempt      INTEGER  NOT NULL,
  response      TEXT     NOT NULL,         -- JSON
  PRIMARY KEY (scheduled_at, trigger_id, kind, attempt)
) PARTITION BY RANGE (scheduled_at); -- plain: );
CREATE TABLE responses_default PARTITION OF responses DEFAULT; -- plain:

-- The endpoints for which the shards of a broadcast were made: they are the same for all of its attempts. The key is
-- that of the parent. Partitions as those of runs.
CREATE TABLE broadcasts (
  scheduled_at BIGINT   NOT NULL,
  trigger_id   BIGINT   NOT NULL,
  kind         SMALLINT NOT NULL,
  endpoints    TEXT     NOT NULL,         -- JSON: their ids, by index
  PRIMARY KEY (scheduled_at, trigger_id, kind)
) PARTITION BY RANGE (scheduled_at); -- plain: );
CREATE TABLE broadcasts_default PARTITION OF broadcasts DEFAULT; -- plain:

-- What runs were given when they were queued: a payload in place of the job's, and why they exist. Shards have that of their
-- parent. Partitions as those of runs.
CREATE TABLE run_inputs (
  scheduled_at BIGINT   NOT NULL,
  trigger_id   BIGINT   NOT NULL,
  kind         SMALLINT NOT NULL,
  input        TEXT     NOT NULL,         -- JSON
  PRIMARY KEY (scheduled_at, trigger_id, kind)
) PARTITION BY RANGE (scheduled_at); -- plain: );
CREATE TABLE run_inputs_default PARTITION OF run_inputs DEFAULT; -- plain:

-- The backfills, and the runs that each has under way: at most its concurrency. One that has ended goes with the longest
-- retention. A backfill moves on under the lock of its row, in the transaction that queues its runs.
CREATE TABLE backfills (
  id         BIGINT  NOT NULL PRIMARY KEY, -- its time and a random part; see repeat.NewBackfillID
  app_id     BIGINT  NOT NULL,
  job_id     BIGINT  NOT NULL,
  spec       TEXT    NOT NULL,            -- JSON: what was asked for
  schedules  TEXT    NOT NULL,            -- JSON: the triggers and calendars as they were declared then
  state      TEXT    NOT NULL CHECK (state IN ('running', 'paused', 'cancelling', 'cancelled', 'complete')),
  error      TEXT    NOT NULL DEFAULT '', -- why it was cancelled, if no operator did that, or reached another number of instants
  waits      TEXT    NOT NULL DEFAULT '', -- why it does not go on now
  tries      INTEGER NOT NULL DEFAULT 0,  -- of its next step, which failed
  try_at     BIGINT  NOT NULL DEFAULT 0,  -- it is not tried before
  total      BIGINT  NOT NULL,            -- instants
  queued     BIGINT  NOT NULL DEFAULT 0,
  skipped    BIGINT  NOT NULL DEFAULT 0,
  succeeded  BIGINT  NOT NULL DEFAULT 0,
  failed     BIGINT  NOT NULL DEFAULT 0,
  cancelled  BIGINT  NOT NULL DEFAULT 0,
  cursor_at  BIGINT,                      -- the last instant that was looked at, in its order; NULL: none
  cursor_trigger BIGINT NOT NULL DEFAULT 0,
  next_at    BIGINT  NOT NULL DEFAULT 0,  -- its pace allows no run before
  created_by TEXT    NOT NULL,
  traceparent TEXT    NOT NULL,            -- of the request that asked for it; empty: it had none
  created_at BIGINT  NOT NULL,
  ended_at   BIGINT
);
CREATE UNIQUE INDEX backfills_open ON backfills (job_id) WHERE ended_at IS NULL;
CREATE INDEX backfills_app ON backfills (app_id, id);
CREATE INDEX backfills_ended ON backfills (ended_at) WHERE ended_at IS NOT NULL;
CREATE TABLE backfill_runs (
  backfill_id  BIGINT NOT NULL,
  scheduled_at BIGINT NOT NULL,
  trigger_id   BIGINT NOT NULL,
  PRIMARY KEY (backfill_id, scheduled_at, trigger_id)
);

-- The bulk actions. One moves on in the transaction that does what it does to one job or run. One that has ended goes with the
-- longest retention.
CREATE TABLE bulk_actions (
  id         BIGINT  NOT NULL PRIMARY KEY, -- its time and a random part; see repeat.NewBackfillID
  app_id     BIGINT  NOT NULL,
  spec       TEXT    NOT NULL,            -- JSON: what was asked for
  state      TEXT    NOT NULL CHECK (state IN ('running', 'cancelled', 'complete')),
  waits      TEXT    NOT NULL DEFAULT '', -- why it does not go on now
  tries      INTEGER NOT NULL DEFAULT 0,  -- of its next step, which failed
  try_at     BIGINT  NOT NULL DEFAULT 0,  -- it is not tried before
  total      BIGINT  NOT NULL,            -- jobs or runs, as they were counted
  more       BOOLEAN NOT NULL,            -- there were more
  done       BIGINT  NOT NULL DEFAULT 0,
  skipped    BIGINT  NOT NULL DEFAULT 0,
  problem    TEXT    NOT NULL DEFAULT '', -- why the latest that was refused was
  item       TEXT    NOT NULL DEFAULT '', -- the cursor of the last job or run that was reached
  created_by TEXT    NOT NULL,
  token_id   TEXT    NOT NULL,
  address    TEXT    NOT NULL,
  request_id TEXT    NOT NULL,
  traceparent TEXT    NOT NULL,            -- of the request that asked for it; empty: it had none
  created_at BIGINT  NOT NULL,
  ended_at   BIGINT
);
CREATE INDEX bulk_actions_open ON bulk_actions (id) WHERE ended_at IS NULL;
CREATE INDEX bulk_actions_app ON bulk_actions (app_id, id);
CREATE INDEX bulk_actions_ended ON bulk_actions (ended_at) WHERE ended_at IS NOT NULL;

-- The runs that have one of the slots of their job. Only jobs with a bound have slots. A row outlives
-- its run until the node that made the attempt says that it is over, or is dead: a cancelled run keeps
-- its slot until its request has been given up. A run has a slot of an endpoint only during its attempts.
CREATE TABLE slots (
  job_id       BIGINT   NOT NULL,
  scheduled_at BIGINT   NOT NULL,
  trigger_id   BIGINT   NOT NULL,
  kind         SMALLINT NOT NULL,
  endpoint     TEXT     NOT NULL,         -- of the group that the job calls; empty: the slot is the job's
  node         BIGINT   NOT NULL,         -- makes an attempt; 0: none does now; -1: the run waits for the endpoint
  token        BIGINT   NOT NULL,         -- of that attempt
  since        BIGINT   NOT NULL,
  PRIMARY KEY (job_id, scheduled_at, trigger_id, kind, endpoint)
);

-- What the runs of a job with carry_state leave to the next. Who writes names the revision that they have seen: a run
-- that returns a state for another revision has it discarded. A row stays when the state is cleared, so that its
-- revision goes on, and goes with the row of the job.
CREATE TABLE carried_states (
  job_id     BIGINT NOT NULL PRIMARY KEY,
  state      TEXT,                        -- JSON in ASCII; NULL: none
  revision   BIGINT NOT NULL,             -- counts the changes
  updated_at BIGINT NOT NULL,
  actor      TEXT   NOT NULL DEFAULT '',  -- who set or cleared it; empty: a run did
  -- The run that wrote it, as in runs; NULL: no run did.
  scheduled_at BIGINT,
  trigger_id   BIGINT,
  kind         SMALLINT,
  -- The latest run whose state was discarded, since the state was last written by a run; NULL: none.
  discarded_scheduled_at BIGINT,
  discarded_trigger_id   BIGINT,
  discarded_kind         SMALLINT
) WITH (fillfactor = 50);

-- The jobs with an objective, and how far their fires are counted; rows of other jobs are removed. All fires before
-- checked_to are counted, but for those of objective_pending and of triggers that owe fires from before.
CREATE TABLE objectives (
  job_id        BIGINT NOT NULL PRIMARY KEY,
  within        BIGINT NOT NULL,          -- milliseconds by which its fires are judged
  counted_from  BIGINT NOT NULL,          -- where counting began
  checked_to    BIGINT NOT NULL,
  pending_after BIGINT NOT NULL DEFAULT 0 -- the scheduled instant up to which pending fires were looked at
) WITH (fillfactor = 50);

-- How far the fires of each of their triggers are counted: never beyond the next fire that the trigger owes, so that no
-- fire enters the ledger behind the cursor.
CREATE TABLE objective_triggers (
  job_id     BIGINT NOT NULL,
  trigger_id BIGINT NOT NULL,
  rolled_to  BIGINT NOT NULL,
  PRIMARY KEY (job_id, trigger_id)
) WITH (fillfactor = 50);

-- The fires that had not ended when their time was counted: they are counted once their first attempt is over.
CREATE TABLE objective_pending (
  job_id       BIGINT   NOT NULL,
  scheduled_at BIGINT   NOT NULL,
  trigger_id   BIGINT   NOT NULL,
  kind         SMALLINT NOT NULL,
  PRIMARY KEY (job_id, scheduled_at, trigger_id, kind)
);

-- Fires of jobs with an objective, by the time that they were scheduled for: by the hour for the whole window, and by
-- five minutes for the last hours.
CREATE TABLE objective_counts (
  job_id  BIGINT   NOT NULL,
  minutes SMALLINT NOT NULL,              -- 60 or 5
  from_at BIGINT   NOT NULL,
  good    BIGINT   NOT NULL,              -- began in time
  late    BIGINT   NOT NULL,              -- began later, or never
  missed  BIGINT   NOT NULL,              -- misfires
  PRIMARY KEY (job_id, minutes, from_at)
) WITH (fillfactor = 70);
-- Where budgets burn, if any do. Counting a good fire changes no entry.
CREATE INDEX objective_counts_bad ON objective_counts (from_at, job_id) WHERE minutes = 5 AND late + missed > 0;

-- What the runs of each UTC day came to, by app and state; the handler counts them. A day is counted twice: its rows that are not
-- final are of its runs that ended at once, and go when the final ones are complete. Rows stay longer than the history.
CREATE TABLE run_statistics (
  app_id    BIGINT  NOT NULL,
  day       BIGINT  NOT NULL,
  final     BOOLEAN NOT NULL,
  state     TEXT    NOT NULL,             -- of runs; empty: misfires
  runs      BIGINT  NOT NULL,
  attempts  BIGINT  NOT NULL,
  started   BIGINT  NOT NULL,             -- fires of triggers whose first attempt began
  late_sum  BIGINT  NOT NULL,             -- milliseconds by which these began late
  late_most BIGINT  NOT NULL,
  PRIMARY KEY (day, app_id, final, state)
) WITH (fillfactor = 70);

-- Which run of each app failed last: those of the latest failures in runs_failed may all be of one app. The handler writes it.
CREATE TABLE app_failures (
  app_id       BIGINT  NOT NULL PRIMARY KEY,
  ended_at     BIGINT  NOT NULL,
  scheduled_at BIGINT  NOT NULL,
  trigger_id   BIGINT  NOT NULL,
  kind         INTEGER NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE misfires (
  from_at    BIGINT NOT NULL,             -- first and last missed instant, inclusive
  to_at      BIGINT NOT NULL,
  trigger_id BIGINT NOT NULL,
  job_id     BIGINT NOT NULL,
  count      BIGINT NOT NULL,
  decision   TEXT   NOT NULL,
  reason     TEXT   NOT NULL,
  catch_up   BIGINT,                      -- scheduled instant of the catch-up run; NULL: none
  node       BIGINT NOT NULL,             -- 0: a change of the definition decided
  decided_at BIGINT NOT NULL,
  PRIMARY KEY (from_at, trigger_id)
);
CREATE INDEX misfires_decided ON misfires (decided_at);
CREATE INDEX misfires_job ON misfires (job_id, from_at);
-- What was decided a day or more after it was missed.
CREATE INDEX misfires_late ON misfires (decided_at) WHERE decided_at - from_at >= 86400000;

CREATE TABLE nodes (
  id           BIGINT  NOT NULL PRIMARY KEY,
  name         TEXT    NOT NULL,
  version      TEXT    NOT NULL,
  state        TEXT    NOT NULL CHECK (state IN ('active', 'paused', 'draining', 'dead')),
  apps         TEXT    NOT NULL,           -- those that it serves; empty: all
  labels       TEXT    NOT NULL,           -- name=value,...
  zones        TEXT    NOT NULL,           -- its time zone database
  started_at   BIGINT  NOT NULL,
  heartbeat_at BIGINT  NOT NULL,
  heartbeat_interval BIGINT NOT NULL DEFAULT 0, -- milliseconds
  in_flight    INTEGER NOT NULL,
  fires        INTEGER NOT NULL,           -- claimed in the minute before the heartbeat
  lag          BIGINT  NOT NULL,           -- milliseconds
  saturated    BOOLEAN NOT NULL DEFAULT FALSE, -- fires found no free worker since the heartbeat before
  clock_offset BIGINT  NOT NULL,           -- milliseconds, against this database's clock
  long_since   BIGINT,                     -- when its spell of attempts longer than its drain began; NULL: none
  api_addresses TEXT   NOT NULL DEFAULT '', -- HOST:PORT,... of its API, which no target may be
  reach        TEXT    NOT NULL DEFAULT '{}', -- what it can call and read besides public addresses, in JSON
  certificate_ends_at BIGINT,              -- that of its API; NULL: it serves no TLS
  empty_at     BIGINT,                     -- when nothing was left of it, at the latest look after its death; NULL: none yet
  heartbeats BIGINT  NOT NULL DEFAULT 0, -- counts the heartbeats
  paused_by_rollback BOOLEAN NOT NULL DEFAULT FALSE, -- paused by a rollback alone
  deregistered BOOLEAN NOT NULL DEFAULT FALSE -- it is dead because it left, and did not vanish
) WITH (fillfactor = 50);

-- Which node does a task for all nodes. A lock is free once locked_until has passed. Giving it back
-- sets that to free_at, or to now if that is later. Rows stay, so that their fences go on.
CREATE TABLE locks (
  name         TEXT   NOT NULL PRIMARY KEY,
  holder       BIGINT NOT NULL,           -- a node
  fence        BIGINT NOT NULL,           -- counts the holders
  locked_until BIGINT NOT NULL,
  free_at      BIGINT NOT NULL,           -- it is not taken again before
  cursor       BIGINT NOT NULL DEFAULT 0  -- where the holder's chore goes on, whichever node holds it next
) WITH (fillfactor = 50);

-- Named exclusions. Deleted softly, so that a name's revision goes on.
CREATE TABLE calendars (
  app_id      BIGINT NOT NULL REFERENCES apps (id),
  name        TEXT   NOT NULL,
  description TEXT   NOT NULL,
  definition  TEXT   NOT NULL,            -- JSON: all that decides about fires
  revision    BIGINT NOT NULL,
  created_at  BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL,
  removal_requested_at BIGINT,            -- it is deleted with its last use; NULL: it stays
  deleted_at  BIGINT,
  PRIMARY KEY (app_id, name)
);

-- Who is told when jobs of an app fail. Deleted softly, so that a name's revision goes on. The destination is the target of
-- an attached job, whose runs deliver the notifications.
CREATE TABLE alerts (
  id          BIGINT NOT NULL PRIMARY KEY,
  app_id      BIGINT NOT NULL REFERENCES apps (id),
  name        TEXT   NOT NULL,
  description TEXT   NOT NULL,
  definition  TEXT   NOT NULL,             -- JSON: all else that was declared
  severity    INTEGER NOT NULL DEFAULT 1,  -- its rank, 0 for the worst, so that the worst are found first
  job_id      BIGINT NOT NULL,             -- the attached job
  muted       TEXT,                        -- JSON: until when and by whom; NULL: nobody muted it
  revision    BIGINT NOT NULL,
  created_at  BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL,
  deleted_at  BIGINT,
  UNIQUE (app_id, name)
);
CREATE INDEX alerts_severity ON alerts (severity, id);
CREATE INDEX alerts_deleted ON alerts (deleted_at) WHERE deleted_at IS NOT NULL;

-- What is known of a condition of an alert for a job. There is a row while the condition holds or failures are counted
-- towards it, for a day afterwards, and for as long as the condition is one of time.
CREATE TABLE alert_states (
  id        BIGINT  NOT NULL PRIMARY KEY,  -- hash of alert, job and condition
  alert_id  BIGINT  NOT NULL,
  job_id    BIGINT  NOT NULL,
  condition TEXT    NOT NULL,
  firing    BOOLEAN NOT NULL,
  armed     BOOLEAN NOT NULL,              -- the end of any run of the job may change it
  kept_back BOOLEAN NOT NULL,              -- a mute keeps something from being notified
  check_at  BIGINT,                        -- when time alone may change it; NULL: never
  track     TEXT    NOT NULL               -- JSON: all else
);
CREATE INDEX alert_states_job ON alert_states (job_id);
CREATE INDEX alert_states_armed ON alert_states (job_id) WHERE armed;
CREATE INDEX alert_states_alert ON alert_states (alert_id, job_id);
CREATE INDEX alert_states_firing ON alert_states (alert_id) WHERE firing;
CREATE INDEX alert_states_kept_back ON alert_states (alert_id) WHERE kept_back;
CREATE INDEX alert_states_due ON alert_states (check_at) WHERE check_at IS NOT NULL;

-- The transitions of states; they are kept as long as the app's history.
CREATE TABLE alert_events (
  app_id BIGINT NOT NULL,
  at     BIGINT NOT NULL,
  id     BIGINT NOT NULL,                  -- of the state
  alert  TEXT   NOT NULL,                  -- the name, as it was then, as that of the job
  job    TEXT   NOT NULL,
  event  TEXT   NOT NULL,                  -- JSON: all else
  PRIMARY KEY (app_id, at, id)
);
CREATE INDEX alert_events_alert ON alert_events (app_id, alert, at, id);
CREATE INDEX alert_events_job ON alert_events (app_id, job, at, id);

-- The revisions of triggers from one change to the next, written by changes of definitions and
-- calendars and never by a fire. From them verify knows what the schedule owed at any instant: a row owes
-- the instants from its next_fire_time on, up to the settled_at of the row that follows it. It
-- goes when it ended before the longest retention. The key leads to all triggers of a job,
-- removed ones too.
CREATE TABLE trigger_revisions (
  job_id            BIGINT  NOT NULL,
  id                BIGINT  NOT NULL,     -- the trigger's
  revision          BIGINT  NOT NULL,     -- the job's
  calendar_revision BIGINT  NOT NULL,     -- the app's
  from_at           BIGINT  NOT NULL,     -- when it came into force
  to_at             BIGINT,               -- when it ended; NULL: it is current
  cause             TEXT    NOT NULL,     -- put, rename, pause, resume, delete, calendar, zones
  actor             TEXT    NOT NULL DEFAULT '', -- of the change, as the audit log has it
  settled_at        BIGINT  NOT NULL,     -- the last instant that was owed before
  next_fire_time    BIGINT,               -- the first instant that it owes
  prev_fire_time    BIGINT,
  name              TEXT    NOT NULL,
  expression        TEXT    NOT NULL,
  dialect           TEXT    NOT NULL,
  timezone          TEXT    NOT NULL,
  start_at          BIGINT,
  end_at            BIGINT,
  repeat_count      INTEGER NOT NULL,
  gap               TEXT    NOT NULL,
  overlap           TEXT    NOT NULL,
  drift_hour        BOOLEAN NOT NULL,
  calendar          TEXT    NOT NULL,
  on_excluded       TEXT    NOT NULL,
  jitter            BIGINT  NOT NULL,
  misfire_after     BIGINT  NOT NULL,
  anchor_at         BIGINT  NOT NULL,
  fired             INTEGER NOT NULL DEFAULT 0,
  counted_from      BIGINT,
  enabled           BOOLEAN NOT NULL,     -- of trigger and job
  paused            BOOLEAN NOT NULL,     -- of trigger or job
  pause             TEXT,                 -- JSON of that of the trigger, else of the job: by whom and why
  labels            TEXT    NOT NULL,     -- the job's: they tell which pauses of the app held it
  zones             TEXT    NOT NULL,     -- the time zone database that next_fire_time was worked out with
  PRIMARY KEY (job_id, id, revision, calendar_revision, from_at, cause)
);
CREATE INDEX trigger_revisions_ended ON trigger_revisions (to_at) WHERE to_at IS NOT NULL;

-- The revisions of calendars, by the revision of the app's calendars; kept as trigger_revisions are.
CREATE TABLE calendar_revisions (
  app_id            BIGINT NOT NULL,
  calendar_revision BIGINT NOT NULL,
  name              TEXT   NOT NULL,
  definition        TEXT,                 -- JSON; NULL: deleted
  to_at             BIGINT,               -- when it ended; NULL: it is current
  PRIMARY KEY (app_id, name, calendar_revision)
);

-- The audit log: who changed what, and whose change was refused. In definitions, hashes stand for values of secrets.
CREATE TABLE audit_log (
  at         BIGINT NOT NULL,
  id         BIGINT NOT NULL,             -- random
  actor      TEXT   NOT NULL,
  token_id   TEXT   NOT NULL DEFAULT '',  -- of the actor; empty: it has none
  address    TEXT   NOT NULL DEFAULT '',
  request_id TEXT   NOT NULL DEFAULT '',
  action     TEXT   NOT NULL,
  app        TEXT   NOT NULL,             -- empty: no app
  subject    TEXT   NOT NULL,             -- kind and name
  revision   BIGINT NOT NULL,
  refused    TEXT   NOT NULL DEFAULT '',  -- code of the problem; empty: the change was done
  before     TEXT,                        -- JSON of the definition, of at most 64 KiB; NULL: none
  after      TEXT,
  PRIMARY KEY (at, id)
);
CREATE INDEX audit_log_app ON audit_log (app, at, id);
CREATE INDEX audit_log_subject ON audit_log (subject, at, id);
CREATE INDEX audit_log_actor ON audit_log (actor, at, id);
CREATE INDEX audit_log_token ON audit_log (token_id, at, id) WHERE token_id <> '';
CREATE INDEX audit_log_refused ON audit_log (at, id) WHERE refused <> '';

-- What changed, for the nodes of a database that has no LISTEN and NOTIFY: they look here once a second. It holds the
-- last minute; where there are notifications it stays empty.
CREATE TABLE notifications (
  at      BIGINT NOT NULL,                -- by the database's clock
  id      BIGINT NOT NULL,                -- random
  payload TEXT   NOT NULL,
  PRIMARY KEY (at, id)
);

CREATE TABLE api_tokens (
  id            TEXT   NOT NULL PRIMARY KEY, -- random
  name          TEXT   NOT NULL UNIQUE,
  description   TEXT   NOT NULL,
  hash          TEXT   NOT NULL UNIQUE,   -- SHA-256 in hexadecimal
  scopes        TEXT   NOT NULL,          -- JSON
  apps          TEXT   NOT NULL,          -- JSON
  expires_at    BIGINT,
  last_used_at  BIGINT,
  rotated_hash  TEXT   UNIQUE,            -- of the token before the latest rotation, which works until rotated_until
  rotated_until BIGINT,
  revision      BIGINT NOT NULL DEFAULT 1,
  created_at    BIGINT NOT NULL
);

-- Who is signed in at the console. A session of an API token ends with it.
CREATE TABLE sessions (
  id         TEXT   NOT NULL PRIMARY KEY, -- random; the audit log names it
  hash       TEXT   NOT NULL UNIQUE,      -- SHA-256 in hexadecimal of what the browser keeps
  token_id   TEXT   NOT NULL,             -- of the API token, or that of an identity of an issuer
  identity   TEXT,                        -- JSON of what an identity may do; NULL: the token is in api_tokens
  rules      TEXT   NOT NULL,             -- which rules permitted that; empty: the token is in api_tokens
  apps       TEXT   NOT NULL,             -- those to which the token is bound, joined with commas; empty: all
  created_at BIGINT NOT NULL,
  used_at    BIGINT NOT NULL,             -- to within a minute
  ends_at    BIGINT NOT NULL
);
CREATE INDEX sessions_token ON sessions (token_id, used_at, id);
CREATE INDEX sessions_used ON sessions (used_at);

-- +goose Down
DROP TABLE objective_counts, objective_pending, objective_triggers, objectives, carried_states;
DROP TABLE installation, app_failures, app_pauses, alert_events, alert_states, alerts, notifications, sessions, api_tokens, app_usage, app_bytes, secrets, followers, pending_ends, endpoints, endpoint_groups, audit_log, trigger_revisions, calendar_revisions, calendars, locks, nodes, misfires, slots, backfill_runs, backfills, bulk_actions, run_inputs, broadcasts, responses, attempts, runs, set_aside, host_waits, live_runs, claims, label_sets, trigger_clock, triggers, jobs, apps;
