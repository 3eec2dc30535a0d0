-- +goose Up

-- The random name of this database, in every event id it sends.
CREATE TABLE installation (
  id       TEXT   NOT NULL,
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
INSERT INTO installation (id) VALUES (replace(CAST(gen_random_uuid() AS TEXT), '-', ''));

-- Apps, jobs and triggers are deleted softly: the ledger keeps their names, and a definition that is
-- declared again under a name continues its revision. Ids are hashes of the names.
CREATE TABLE apps (
  id                BIGINT  NOT NULL PRIMARY KEY,
  name              TEXT    NOT NULL UNIQUE,
  description       TEXT    NOT NULL,
  enabled           BOOLEAN NOT NULL,     -- an operator's wish; schedulers never write it
  weight            INTEGER NOT NULL,     -- turns among the apps
  retention         BIGINT  NOT NULL,     -- milliseconds that the app's history is kept
  history_from      BIGINT  NOT NULL DEFAULT 0, -- earlier history was removed under a shorter retention
  revision          BIGINT  NOT NULL,
  calendar_revision BIGINT  NOT NULL DEFAULT 0, -- counts the changes of all its calendars
  created_at        BIGINT  NOT NULL,
  updated_at        BIGINT  NOT NULL,
  deleted_at        BIGINT
);

CREATE TABLE jobs (
  id            BIGINT  NOT NULL PRIMARY KEY,
  app_id        BIGINT  NOT NULL REFERENCES apps (id),
  name          TEXT    NOT NULL,
  description   TEXT    NOT NULL,
  enabled       BOOLEAN NOT NULL,
  paused        BOOLEAN NOT NULL,         -- an operator's wish; schedulers never write it
  priority      INTEGER NOT NULL,         -- higher goes first within the app
  node_labels   TEXT    NOT NULL,         -- name=value,...: what a node must have
  delivery      TEXT    NOT NULL,
  retry         TEXT    NOT NULL,         -- JSON
  concurrency_policy TEXT NOT NULL,
  max_concurrency INTEGER NOT NULL,       -- 0: as the policy has it
  queue_limit   INTEGER NOT NULL,
  delete_after_completion BIGINT NOT NULL DEFAULT 0, -- milliseconds; 0: never
  target        TEXT    NOT NULL,         -- JSON
  payload       TEXT    NOT NULL,         -- JSON; empty: none
  trigger_names TEXT    NOT NULL,         -- JSON; their ids follow from the names
  state         TEXT    NOT NULL DEFAULT 'INIT', -- for people: the roll-up of triggers and live runs
  completed_at  BIGINT,                   -- when the state became COMPLETE, which it still is
  revision      BIGINT  NOT NULL,
  created_at    BIGINT  NOT NULL,
  updated_at    BIGINT  NOT NULL,
  deleted_at    BIGINT,
  UNIQUE (app_id, name)
);
CREATE INDEX jobs_labels ON jobs (node_labels) WHERE node_labels <> '';
CREATE INDEX jobs_deleted ON jobs (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX jobs_expired ON jobs ((completed_at + delete_after_completion)) WHERE delete_after_completion > 0 AND deleted_at IS NULL;

-- Values of secrets in targets, encrypted: each by a data key of its own, which is encrypted by
-- the key of that id. No key is in any database.
CREATE TABLE secrets (
  job_id     BIGINT NOT NULL REFERENCES jobs (id),
  path       TEXT   NOT NULL,             -- JSON pointer in the target
  key_id     TEXT   NOT NULL,
  data_key   BYTEA  NOT NULL,
  ciphertext BYTEA  NOT NULL,
  PRIMARY KEY (job_id, path)
);

-- HOT. One row is rewritten by every fire, so it holds only what a poll or a claim reads.
--
-- Indexes: each one besides the primary key costs every claim one more entry, because a claim
-- changes due_at, which the poll must find in order, and so can never be a
-- heap-only update. Hence no index on job_id: jobs.trigger_names leads to the ids.
-- 1,000,000 triggers, 500 due:
--   Limit (actual rows=500)
--     ->  Index Scan using triggers_due on triggers t (actual rows=500)
--           Index Cond: (ROW(due_at, id) > ROW(..) AND due_at <= ..)
--           Filter: (hashed SubPlan 1)            -- the app is enabled
-- Paused and settled triggers are not in the index, so however many there are, the poll
-- does not step over them.
-- Fillfactor 70: the new version of a row finds room on its page, so that a claim dirties (and
-- after a checkpoint, logs in full) one heap page and not two. With 1,000,000 triggers a fire
-- then writes 1,780 bytes of WAL and not 1,910 to 2,170.
CREATE TABLE triggers (
  id                BIGINT   NOT NULL PRIMARY KEY,
  job_id            BIGINT   NOT NULL REFERENCES jobs (id),
  app_id            BIGINT   NOT NULL REFERENCES apps (id),
  revision          BIGINT   NOT NULL,    -- the job's; in the claim's key
  calendar_revision BIGINT   NOT NULL,    -- the app's when next_fire_time was worked out; in the claim's key
  next_fire_time    BIGINT,               -- NULL: none, as when disabled, complete, or a fixed delay that runs
  due_at            BIGINT,               -- next_fire_time, later by the jitter
  prev_fire_time    BIGINT,
  misfire_after     BIGINT   NOT NULL,    -- milliseconds
  anchor_at         BIGINT   NOT NULL,
  start_at          BIGINT,
  end_at            BIGINT,
  jitter            BIGINT   NOT NULL,    -- milliseconds
  repeat_count      INTEGER  NOT NULL,
  fired             INTEGER  NOT NULL,    -- runs of a fixed delay that have ended
  enabled           BOOLEAN  NOT NULL,
  paused            BOOLEAN  NOT NULL,    -- an operator's wish; schedulers never write it
  job_paused        BOOLEAN  NOT NULL,    -- copy of jobs.paused, so that a claim reads one table
  delayed           BOOLEAN  NOT NULL,    -- a fixed delay: the end of its run schedules the next fire, not a claim
  drift_hour        BOOLEAN  NOT NULL,
  state             TEXT     NOT NULL CHECK (state IN ('waiting', 'complete', 'error')),
  name              TEXT     NOT NULL,
  expression        TEXT     NOT NULL,
  dialect           TEXT     NOT NULL,
  timezone          TEXT     NOT NULL,
  gap               TEXT     NOT NULL,
  overlap           TEXT     NOT NULL,
  calendar          TEXT     NOT NULL,    -- name of a calendar of the app; empty: none
  on_excluded       TEXT     NOT NULL,
  error             TEXT     NOT NULL,    -- why the state is error
  node_labels       TEXT     NOT NULL,    -- copy of the job's, so that a poll reads one table
  attempt_timeout   BIGINT,               -- copy of the job's, in milliseconds; NULL: 30 s, as of most webhooks
  misfire_policy    TEXT,                 -- NULL: fire_once
  catch_up_window   BIGINT,               -- milliseconds; NULL: the longest there is
  deleted_at        BIGINT
) WITH (fillfactor = 70);
CREATE INDEX triggers_due ON triggers (due_at, id)
  WHERE state = 'waiting' AND NOT paused AND NOT job_paused AND due_at IS NOT NULL;
-- Both are small: the triggers that a change of a calendar concerns, and the fixed delays
-- whose run is in flight.
CREATE INDEX triggers_deleted ON triggers (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX triggers_calendar ON triggers (app_id, calendar) WHERE calendar <> '' AND deleted_at IS NULL;
CREATE INDEX triggers_delayed ON triggers (id)
  WHERE delayed AND next_fire_time IS NULL AND state = 'waiting' AND enabled AND deleted_at IS NULL;

-- HOT. One row per fire: inserted by the claim, updated once by the record. The row is also
-- its latest attempt; an earlier attempt moves to the table attempts when the next begins.
-- A row per attempt in every case would cost each fire another insert into another unique
-- index: measured, a third more CPU and 350 more bytes of WAL per fire.
--
-- Primary key: it is the guarantee of one claim per fire (one row for each trigger,
-- instant and kind), in an order that appends and finds a run by its id. No foreign key to
-- triggers: it would lock a row per fire, and a manual run has the job's id there.
--
-- Partitions: one per UTC day of the scheduled instant, runs_20260131, made days ahead by the
-- clean-up and dropped by it once retention has passed; no row is deleted one by one then. A
-- day that was not made in time, as for a backfill or after days without a node, goes to
-- runs_default. A run's id holds its instant, so that finding it touches one partition. Hot
-- statements bound scheduled_at by parameters, so that the planner sees only the days that it
-- needs. A search for live runs reads the runs_live of each day, all of which are empty but the
-- latest.
-- runs_live finds what queued (node 0) and dead nodes hold, and the live runs of a job; its
-- size is that of the work in flight. runs_ended is the history of a job. A run is in one of
-- the two, so claim and record each write one entry:
--   Limit (actual rows=50)
--     ->  Incremental Sort (Sort Key: scheduled_at DESC, trigger_id DESC, kind DESC)
--           ->  Index Scan Backward using runs_ended on runs (actual rows=51)
-- runs_retrying finds the runs that are to be attempted again, when they are. They stay live
-- and keep the node of their latest attempt, but have no token: no node holds them. A run that does
-- not fail never enters this index.
-- The price is that a record is no heap-only update. Measured on 2 cores, fsync on, batches of
-- 500, CPU of the server per fire, 100,000 triggers: 36 us so; 41 us with the history index
-- over live rows too; 33 us heap-only, with fillfactor 50 (twice the disk for ever) and a
-- BRIN on claimed_at, which would find a dead node's runs only within a bound that its
-- heartbeat must keep, and lose those of a claim that commits after the bound moved.
-- Fillfactor is left at 100: no update stays on its page.
CREATE TABLE runs (
  scheduled_at BIGINT   NOT NULL,
  trigger_id   BIGINT   NOT NULL,         -- the job's id for a manual run
  job_id       BIGINT   NOT NULL,
  revision     BIGINT   NOT NULL,         -- of the job when claimed, requested, adopted or retried
  node         BIGINT   NOT NULL,         -- 0: no node works on it; -1: it waits for a slot
  token        BIGINT   NOT NULL,         -- fence; 0: no node may record
  claimed_at   BIGINT,
  started_at   BIGINT,
  ended_at     BIGINT,
  attempt      INTEGER  NOT NULL,
  http_status  INTEGER  NOT NULL DEFAULT 0,
  kind         SMALLINT NOT NULL,         -- as in run ids
  live         BOOLEAN  NOT NULL,         -- whether there is still something to do
  failures     INTEGER  NOT NULL DEFAULT 0, -- attempts that count against the job's retries
  next_attempt_at BIGINT,                 -- of a retrying run
  retry_until  BIGINT,                    -- when a run that failed or was deferred is given up
  state        TEXT     NOT NULL,
  class        TEXT     NOT NULL DEFAULT '',
  error        TEXT     NOT NULL DEFAULT '',
  PRIMARY KEY (scheduled_at, trigger_id, kind)
) PARTITION BY RANGE (scheduled_at); -- plain: );
CREATE TABLE runs_default PARTITION OF runs DEFAULT; -- plain:
CREATE INDEX runs_live ON runs (node, job_id) WHERE live;
CREATE INDEX runs_ended ON runs (job_id, scheduled_at) WHERE NOT live;
CREATE INDEX runs_retrying ON runs (next_attempt_at) WHERE state = 'retrying';

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

-- The responses to attempts, where there is anything to keep; see dispatcher.Response. They are apart
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

-- The runs that have one of the slots of their job. Only jobs with a bound have slots. A row outlives
-- its run until the node that made the attempt says that it is over, or is dead: a cancelled run keeps
-- its slot until its request has been given up.
CREATE TABLE slots (
  job_id       BIGINT   NOT NULL,
  scheduled_at BIGINT   NOT NULL,
  trigger_id   BIGINT   NOT NULL,
  kind         SMALLINT NOT NULL,
  node         BIGINT   NOT NULL,         -- makes an attempt; 0: none does now
  token        BIGINT   NOT NULL,         -- of that attempt
  since        BIGINT   NOT NULL,
  PRIMARY KEY (job_id, scheduled_at, trigger_id, kind)
);

CREATE TABLE misfires (
  from_at    BIGINT NOT NULL,             -- first and last missed instant, inclusive
  to_at      BIGINT NOT NULL,
  trigger_id BIGINT NOT NULL,
  job_id     BIGINT NOT NULL REFERENCES jobs (id),
  count      BIGINT NOT NULL,
  decision   TEXT   NOT NULL,
  reason     TEXT   NOT NULL,
  catch_up   BIGINT,                      -- scheduled instant of the catch-up run; NULL: none
  node       BIGINT NOT NULL,             -- 0: a change of the definition decided
  decided_at BIGINT NOT NULL,
  PRIMARY KEY (from_at, trigger_id)
);
CREATE INDEX misfires_job ON misfires (job_id, from_at);

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
  in_flight    INTEGER NOT NULL,
  fires        INTEGER NOT NULL,           -- claimed in the minute before the heartbeat
  lag          BIGINT  NOT NULL,           -- milliseconds
  clock_offset BIGINT  NOT NULL,           -- milliseconds, against this database's clock
  long_since   BIGINT,                     -- when its spell of attempts longer than its drain began; NULL: none
  heartbeats BIGINT  NOT NULL DEFAULT 0, -- counts the heartbeats
  paused_by_rollback BOOLEAN NOT NULL DEFAULT FALSE -- paused by a rollback alone
) WITH (fillfactor = 50);

-- Which node does a task for all nodes. A lock is free once locked_until has passed. Giving it back
-- sets that to free_at, or to now if that is later. Rows stay, so that their fences go on.
CREATE TABLE locks (
  name         TEXT   NOT NULL PRIMARY KEY,
  holder       BIGINT NOT NULL,           -- a node
  fence        BIGINT NOT NULL,           -- counts the holders
  locked_until BIGINT NOT NULL,
  free_at      BIGINT NOT NULL            -- it is not taken again before
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
  deleted_at  BIGINT,
  PRIMARY KEY (app_id, name)
);

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
  cause             TEXT    NOT NULL,     -- put, pause, resume, delete, calendar, zones
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
  enabled           BOOLEAN NOT NULL,     -- of trigger and job
  paused            BOOLEAN NOT NULL,     -- of trigger or job
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

-- The audit log: who changed what. It never holds a definition, which may hold secrets.
CREATE TABLE audit_log (
  at       BIGINT NOT NULL,
  id       BIGINT NOT NULL,               -- random
  actor    TEXT   NOT NULL,
  action   TEXT   NOT NULL,
  app      TEXT   NOT NULL,               -- empty: no app
  subject  TEXT   NOT NULL,               -- kind and name
  revision BIGINT NOT NULL,
  PRIMARY KEY (at, id)
);
CREATE INDEX audit_log_app ON audit_log (app, at);

CREATE TABLE api_tokens (
  name       TEXT   NOT NULL PRIMARY KEY,
  hash       TEXT   NOT NULL UNIQUE,      -- SHA-256 in hexadecimal
  scope      TEXT   NOT NULL,
  apps       TEXT   NOT NULL,             -- JSON
  created_at BIGINT NOT NULL
);

-- +goose Down
DROP TABLE installation, api_tokens, secrets, audit_log, trigger_revisions, calendar_revisions, calendars, locks, nodes, misfires, slots, responses, attempts, runs, triggers, jobs, apps;
