package series_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/series"
)

func TestAppsBeyondTheMostShareASeries(t *testing.T) {
	t.Parallel()
	apps := series.New(func(app string) *string { return &app })
	for n := range series.MostApps {
		name := fmt.Sprint("app-", n)
		if own := apps.Of(name); *own != name || apps.Of(name) != own {
			t.Fatalf("app %s has the series of %q", name, *own)
		}
	}
	for _, name := range []string{"one-more", "another", series.Others} {
		if got := *apps.Of(name); got != series.Others {
			t.Errorf("app %s has the series of %q, want those of the others", name, got)
		}
	}
	if got := *apps.Of("app-0"); got != "app-0" {
		t.Errorf("the first app has the series of %q now", got)
	}
}

// Goroutines that meet an app at once must not count in two copies of its series.
func TestAppsAreMadeOnce(t *testing.T) {
	t.Parallel()
	apps := series.New(func(app string) *string { return &app })
	var met sync.Map
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { met.Store(apps.Of("app"), true) })
	}
	all.Wait()
	count := 0
	met.Range(func(any, any) bool { count++; return true })
	if count != 1 {
		t.Errorf("the app has %d series, want one", count)
	}
}
