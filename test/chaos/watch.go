package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// watch makes the database record each change of values that the product's tables do not keep: next
// fires of triggers, holders of locks, heartbeats of nodes, and runs that are in two tables at
// once.
const watch = `
CREATE SCHEMA watch;
CREATE TABLE watch.advances (trigger_id BIGINT, same BOOLEAN, was BIGINT, next BIGINT);
CREATE TABLE watch.grants (name TEXT, was_fence BIGINT, fence BIGINT, was_until BIGINT, at BIGINT);
CREATE TABLE watch.heartbeats (node BIGINT, at BIGINT);
CREATE TABLE watch.doubles (trigger_id BIGINT, scheduled_at BIGINT, kind SMALLINT, at BIGINT);

CREATE FUNCTION watch.advance() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO watch.advances VALUES (NEW.id, OLD.revision = NEW.revision AND OLD.calendar_revision = NEW.calendar_revision,
		coalesce(OLD.next_fire_time, OLD.prev_fire_time), NEW.next_fire_time);
	RETURN NULL;
END $$;
CREATE TRIGGER watch AFTER UPDATE ON trigger_clock FOR EACH ROW WHEN (OLD.next_fire_time IS DISTINCT FROM NEW.next_fire_time)
	EXECUTE FUNCTION watch.advance();

CREATE FUNCTION watch.grant() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO watch.grants VALUES (NEW.name, OLD.fence, NEW.fence, OLD.locked_until, floor(extract(epoch FROM clock_timestamp()) * 1000));
	RETURN NULL;
END $$;
CREATE TRIGGER watch AFTER UPDATE ON locks FOR EACH ROW WHEN (OLD.fence <> NEW.fence OR OLD.holder <> NEW.holder)
	EXECUTE FUNCTION watch.grant();

CREATE FUNCTION watch.heartbeat() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO watch.heartbeats VALUES (NEW.id, NEW.heartbeat_at);
	RETURN NULL;
END $$;
CREATE TRIGGER watch AFTER INSERT OR UPDATE OF heartbeat_at ON nodes FOR EACH ROW EXECUTE FUNCTION watch.heartbeat();

-- At the end of its transaction: a statement may insert a run here before it deletes it there.
CREATE FUNCTION watch.double() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO watch.doubles SELECT r.trigger_id, r.scheduled_at, r.kind, floor(extract(epoch FROM clock_timestamp()) * 1000)
		FROM runs AS r JOIN live_runs AS l USING (scheduled_at, trigger_id, kind)
		WHERE r.scheduled_at = NEW.scheduled_at AND r.trigger_id = NEW.trigger_id AND r.kind = NEW.kind;
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER watch AFTER INSERT ON live_runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION watch.double();
CREATE CONSTRAINT TRIGGER watch AFTER INSERT ON runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION watch.double();`

// watch installs these database triggers.
func (d *database) watch(ctx context.Context) error {
	if err := d.script(ctx, databaseName, watch); err != nil {
		return fmt.Errorf("watch the tables: %w", err)
	}
	return nil
}

// verify makes the product compare its ledger with its schedules, and records the output.
func (c *chaos) verify(ctx context.Context) error {
	log, err := history.Create(c.dir, history.Verifications, false)
	if err != nil {
		return err
	}
	defer log.Close()
	for _, app := range c.declared.apps {
		command := exec.CommandContext(ctx, c.program, "verify", app)
		command.Env = append(os.Environ(), "CARILLON_ENDPOINT=http://"+c.nodes[0].listen, "CARILLON_TOKEN="+c.declared.token)
		output, failed := command.CombinedOutput()
		if err := log.Append(history.Verification{App: app, Failed: failed != nil, Output: string(output)}); err != nil {
			return err
		}
	}
	return nil
}
