package console

import (
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// appsPage is the list of apps.
type appsPage struct {
	client.List[access.App]
	// More is the URL of the next page; empty: this is the last.
	More string
}

func showApps(v *visit) (content, error) {
	list, err := v.client.Apps(v.Context(), input.Page{Limit: 100, Cursor: v.query("cursor")})
	return content{Data: appsPage{List: list, More: v.more(list.Next)}}, err
}
