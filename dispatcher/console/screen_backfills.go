package console

import (
	"net/url"

	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
)

func showBackfills(v *visit) (content, error) {
	f := v.fields()
	list, err := v.client.Backfills(v.Context(), repeat.BackfillQuery{App: v.PathValue("app"), Job: f.Text("job"), Page: v.page()})
	return v.filtered(content{Data: listOf(v, list, f.All("job")), Refresh: true}, err)
}

type backfillPage struct {
	repeat.Backfill
	Bar kit.Progress
}

func showBackfill(v *visit) (content, error) {
	app, id := v.PathValue("app"), v.PathValue("backfill")
	b, err := v.client.Backfill(v.Context(), app, id)
	if err != nil {
		return content{}, err
	}
	page := backfillPage{b, kit.ProgressBar(b.Total, []kit.Portion{
		{Key: "succeeded", Count: b.Succeeded}, {Key: "failed", Count: b.Failed}, {Key: "cancelled", Count: b.Cancelled},
		{Key: "skipped", Count: b.Skipped}, {Key: "running", Count: b.Running},
	}...)}
	return content{Title: v.Texts.Text("backfill.title", "job", b.Job), Data: page, Refresh: !b.State.Ended()}, nil
}

// changeBackfill returns the action that pauses, resumes or cancels a backfill.
func changeBackfill(action repeat.BackfillAction) func(*visit) (done, error) {
	return func(v *visit) (done, error) {
		app, id := v.PathValue("app"), v.PathValue("backfill")
		_, err := v.client.ChangeBackfill(v.Context(), app, id, action)
		return done{to: v.link("apps", app, "backfills", id), notice: "backfill.notice." + string(action)}, err
	}
}

// showBackfillCancel asks before a backfill is cancelled.
func showBackfillCancel(v *visit) (content, error) {
	app, id := v.PathValue("app"), v.PathValue("backfill")
	b, err := v.client.Backfill(v.Context(), app, id)
	if err != nil {
		return content{}, err
	}
	return v.confirm("backfill_cancel", confirmPage{
		Facts: []fact{v.fact("backfill.total", b.Total), v.fact("backfill.queued", b.Queued), v.fact("backfill.running", b.Running)},
		Harm:  true, Back: v.link("apps", app, "backfills", id),
	}, "job", b.Job), nil
}

// newBackfillPage asks for a backfill. Once the form is filled in, it has the number of instants.
type newBackfillPage struct {
	App    string
	Filter map[string]string
	Orders []repeat.BackfillOrder
	Kinds  []repeat.BackfillExisting
	Count  *repeat.BackfillCount
	// Fields are the counted form, to be sent unchanged.
	Fields url.Values
}

var backfillFields = []string{"job", "trigger", "from", "to", "concurrency", "order", "pace", "existing", "reason"}

func backfillSpec(f *kit.Fields) repeat.BackfillSpec {
	asked := repeat.BackfillRequest{}
	asked.SetDefaults()
	spec := asked.BackfillSpec
	spec.Trigger, spec.Reason = f.Text("trigger"), f.Text("reason")
	spec.From, spec.To, spec.Pace = f.Instant("from"), f.Instant("to"), f.Duration("pace")
	spec.Concurrency = f.Number("concurrency", spec.Concurrency)
	if order := f.Text("order"); order != "" {
		spec.Order = repeat.BackfillOrder(order)
	}
	if existing := f.Text("existing"); existing != "" {
		spec.Existing = repeat.BackfillExisting(existing)
	}
	return spec
}

func showNewBackfill(v *visit) (content, error) {
	app, f := v.PathValue("app"), v.fields()
	page := newBackfillPage{
		App: app, Filter: f.All(backfillFields...),
		Orders: []repeat.BackfillOrder{repeat.BackfillOldestFirst, repeat.BackfillLatestFirst},
		Kinds:  []repeat.BackfillExisting{repeat.ExistingSkip, repeat.ExistingFailed, repeat.ExistingRun},
	}
	shown := content{}
	spec, err := backfillSpec(f), error(nil)
	if wanted := f.Text("job") != "" && !spec.From.IsZero() && !spec.To.IsZero(); wanted || f.Err() != nil {
		if err = f.Err(); err == nil {
			var count repeat.BackfillCount
			if count, err = v.client.CountBackfill(v.Context(), app, f.Text("job"), spec); err == nil {
				page.Count, page.Fields = &count, url.Values{}
				for _, name := range backfillFields {
					page.Fields.Set(name, f.Text(name))
				}
			}
		}
	}
	shown.Data = page
	return v.filtered(shown, err)
}

func startBackfill(v *visit) (done, error) {
	app, f := v.PathValue("app"), v.fields()
	spec := backfillSpec(f)
	if err := f.Err(); err != nil {
		return done{}, err
	}
	b, err := v.client.CreateBackfill(v.Context(), app, f.Text("job"), spec)
	return done{to: v.link("apps", app, "backfills", b.ID), notice: "backfill.notice.start", values: []any{"job", b.Job}}, err
}
