package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// expiring counts the calls of ExpireEndpoints.
type expiring struct {
	Store
	calls int
}

func (s *expiring) ExpireEndpoints(ctx context.Context, limit int, now time.Time) (int, error) {
	s.calls++
	return s.Store.ExpireEndpoints(ctx, limit, now)
}

// A round removes all endpoints that stopped registering, and looks once if there are none.
func TestHandlerRemovesExpiredEndpoints(t *testing.T) {
	t.Parallel()
	counted := &expiring{}
	r := newRig(t, func(s Store) Store { counted.Store = s; return counted })
	by := input.Change{Actor: "test"}
	for g := range 3 {
		group := target.EndpointGroup{App: "app", Name: fmt.Sprint("g", g),
			EndpointGroupSpec: target.EndpointGroupSpec{Registration: &target.Registration{Networks: []string{"10.0.0.0/8"}, Ports: []int{80}}}}
		if _, _, err := r.store.PutGroup(t.Context(), group, by); err != nil {
			t.Fatal(err)
		}
		for i := range target.MaxEndpoints {
			e := target.Endpoint{ID: fmt.Sprint("e", i), StaticEndpoint: target.StaticEndpoint{URL: "http://10.0.0.1"}}
			by.Now = time.Now().Add(time.Hour) // not gone by the end of a slow test
			if i > 0 {
				by.Now = by.Now.Add(-2 * time.Hour)
			}
			if _, _, err := r.store.RegisterEndpoint(t.Context(), "app", group.Name, e, by); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.chores.Round(t.Context(), r.now); err != nil {
		t.Fatal(err)
	}
	if counted.calls != 2 { // a page of 1000, and the rest
		t.Errorf("a round asked %d times for expired endpoints, want 2", counted.calls)
	}
	for g := range 3 {
		left, err := r.store.Endpoints(t.Context(), "app", fmt.Sprint("g", g), time.Now().Add(-2*time.Hour), input.Page{Limit: 10})
		if err != nil || len(left) != 1 || left[0].ID != "e0" {
			t.Errorf("endpoints left in group %d = %+v, %v; want e0", g, left, err)
		}
	}
}
