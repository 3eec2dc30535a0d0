package console

import (
	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// misfiresPage is the list of the misfire decisions of an app.
type misfiresPage struct {
	client.List[dispatcher.Misfire]
	App, More string
	Filter    map[string]string
}

func showMisfires(v *visit) (content, error) {
	app, f := v.PathValue("app"), v.fields()
	query := dispatcher.RunQuery{App: app, Job: f.Text("job"), Trigger: f.Text("trigger"), From: f.Instant("from"), To: f.Instant("to"),
		Page: v.page()}
	page := misfiresPage{App: app, Filter: f.All("job", "trigger", "from", "to")}
	err := f.Err()
	if err == nil {
		page.List, err = v.client.Misfires(v.Context(), query)
	}
	page.More = v.more(page.Next)
	return v.filtered(content{Data: page, Refresh: true}, err)
}
