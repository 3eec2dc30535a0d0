package console

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// jobStatisticsPage shows how long the runs of a job waited and took, and a calendar of them.
type jobStatisticsPage struct {
	App, Job string
	view.JobStatistics
	// Shorter means that there are more runs than are examined: From is later than asked for.
	Shorter bool
	Last    []lastChoice
	Heat    kit.HeatMap
}

// statisticsOfJob is how many days the page has, unless the URL says otherwise.
const statisticsOfJob = 14

func showJobStatistics(v *visit) (content, error) {
	f, page := v.fields(), jobStatisticsPage{App: v.PathValue("app"), Job: v.PathValue("job"), Last: v.lastChoices("7d", "14d", "28d")}
	days := statisticsOfJob
	if last := f.Duration("last"); last > 0 {
		days = int(min(max(last.Std()/(24*time.Hour), 1), 28))
	}
	result := content{Title: v.Texts.Text("job_statistics.of", "job", page.App+"/"+page.Job), App: page.App}
	if err := f.Err(); err != nil {
		result.Data = page
		return v.filtered(result, err)
	}
	until := v.Zone.In(v.Now, "")
	year, month, day := until.AddDate(0, 0, 1-days).Date()
	from := time.Date(year, month, day, 0, 0, 0, 0, until.Location())
	var err error
	if page.JobStatistics, err = v.client.JobStatistics(v.Context(), page.App, page.Job, from, v.Now); err != nil {
		return content{}, err
	}
	page.Shorter = page.From.After(from)
	page.Heat = kit.NewHeatMap(page.Hours, until, days)
	result.Data = page
	return result, nil
}

// Percentiles are the rows of the table of percentiles, by the keys of their texts.
func (p jobStatisticsPage) Percentiles() map[string]view.Percentiles {
	return map[string]view.Percentiles{"job_statistics.waits": p.Waits, "job_statistics.durations": p.Durations}
}

// comparePage shows how the definition of a job differs between two changes of it.
type comparePage struct {
	App, Job string
	Old, New access.AuditEntry
	Changed  []changedAttribute
}

// changedAttribute is an attribute with its values as JSON; empty: it has none.
type changedAttribute struct{ Name, Old, New string }

func showCompare(v *visit) (content, error) {
	page := comparePage{App: v.PathValue("app"), Job: v.PathValue("job")}
	for name, entry := range map[string]*access.AuditEntry{"old": &page.Old, "new": &page.New} {
		found, err := v.auditEntry(v.query(name))
		if err != nil {
			return content{}, err
		}
		*entry = found
	}
	if page.Old.At.After(page.New.At) {
		page.Old, page.New = page.New, page.Old
	}
	page.Changed = changedAttributes(page.Old.After, page.New.After)
	return content{Title: v.Texts.Text("compare.title", "job", page.App+"/"+page.Job), App: page.App, Data: page}, nil
}

// auditEntry returns an entry of the audit log: it is the first one after the id just before it.
func (v *visit) auditEntry(wanted string) (access.AuditEntry, error) {
	at, id, err := access.ParseAuditID(wanted)
	if err != nil {
		return access.AuditEntry{}, notFound("entry", wanted)
	}
	list, err := v.client.Audit(v.Context(), access.AuditQuery{From: at, To: at.Add(time.Millisecond), OldestFirst: true,
		Page: input.Page{Limit: 1, Cursor: access.AuditID(at, id-1)}})
	if err != nil {
		return access.AuditEntry{}, err
	}
	if len(list.Items) == 0 || list.Items[0].ID != wanted {
		return access.AuditEntry{}, notFound("entry", wanted)
	}
	return list.Items[0], nil
}

// changedAttributes returns the attributes that differ between two definitions, by name.
func changedAttributes(before, after json.RawMessage) (changed []changedAttribute) {
	old, now := map[string]string{}, map[string]string{}
	addAttributes(old, "", before)
	addAttributes(now, "", after)
	names := maps.Clone(old)
	maps.Copy(names, now)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if old[name] != now[name] {
			changed = append(changed, changedAttribute{name, old[name], now[name]})
		}
	}
	return changed
}

// addAttributes adds the values in JSON, named as in target.webhook.url.
func addAttributes(all map[string]string, name string, raw json.RawMessage) {
	var object map[string]json.RawMessage
	var list []json.RawMessage
	_, _ = json.Unmarshal(raw, &object), json.Unmarshal(raw, &list) // one of them, or neither
	for i, item := range list {
		if object == nil {
			object = map[string]json.RawMessage{}
		}
		object[strconv.Itoa(i)] = item
	}
	if len(object) == 0 {
		all[name] = shownJSON(raw)
		return
	}
	if name != "" {
		name += "."
	}
	for key, value := range object {
		addAttributes(all, name+key, value)
	}
}
