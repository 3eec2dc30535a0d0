package engine

import (
	"reflect"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/store/storetest"
)

// A bad row stops only itself, in each method of the store. storetest.Batches lists how each method ensures that.
func TestBadRowStopsOnlyItselfInEachStoreMethod(t *testing.T) {
	t.Parallel()
	store := reflect.TypeFor[Store]()
	known := map[string]bool{}
	for i := range store.NumMethod() {
		name := store.Method(i).Name
		known[name] = true
		batch, listed := storetest.Batches[name]
		switch {
		case !listed:
			t.Errorf("%s is missing in storetest.Batches: if it works on rows of several jobs, let it go through inParts or inPortions of "+
				"package store and add a case to poisonedBatches; otherwise say why it has no batch", name)
		case (batch.Works == nil) == (batch.Why == ""):
			t.Errorf("%s has works %v and the reason %q for none, want one of them", name, batch.Works, batch.Why)
		}
	}
	for name := range storetest.Batches {
		if !known[name] {
			t.Errorf("storetest.Batches has %s, which the engine does not call", name)
		}
	}
}
