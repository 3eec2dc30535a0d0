package api

import (
	"errors"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func (a *API) listGroups(r *request) (response, error) {
	name := func(g target.EndpointGroup) string { return g.Name }
	return pagedByName(r, name, func(page input.Page) ([]target.EndpointGroup, error) {
		return a.store.Groups(r.Context(), r.PathValue("app"), page)
	})
}

func (a *API) getGroup(r *request) (response, error) {
	group, err := a.store.Group(r.Context(), r.PathValue("app"), r.PathValue("group"))
	return response{revision: group.Revision, body: group}, err
}

func (a *API) putGroup(r *request) (response, error) {
	group := target.EndpointGroup{App: r.PathValue("app"), Name: r.PathValue("group")}
	problems := r.Decode(&group)
	mustMatch(&problems, "/app", group.App, r.PathValue("app"))
	mustMatch(&problems, "/name", group.Name, r.PathValue("group"))
	return put(a, r, group, problems, a.store.PutGroup, func(stored target.EndpointGroup) int64 { return stored.Revision })
}

func (a *API) deleteGroup(r *request) (response, error) {
	return a.remove(r, func(change input.Change) error {
		err := a.store.DeleteGroup(r.Context(), r.PathValue("app"), r.PathValue("group"), change)
		if errors.Is(err, dispatcher.ErrInUse) {
			use := strings.TrimSuffix(err.Error(), ": "+dispatcher.ErrInUse.Error())
			return input.Refuse(input.CodeGroupInUse, "%s; give the job another target, or delete it, first", use)
		}
		return err
	})
}
