package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
)

// T11: a page of a thousand jobs of half a megabyte each was built in memory as a whole.
func TestPagesEndAfterSomeBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	var want []string
	payload := strings.Repeat("x", 240<<10)
	for n := range 40 {
		name := fmt.Sprintf("large-%02d", n)
		want = append(want, name)
		w.must(http.StatusCreated, "PUT", oneApp+"/jobs/"+name, with(t, `"`+payload+`"`, "payload"))
	}
	want = append(want, "sync")
	var got []string
	pages := 0
	for cursor := ""; ; pages++ {
		response := w.must(http.StatusOK, "GET", oneApp+"/jobs?limit=1000"+cursor, "")
		if size := response.Body.Len(); size > 5<<20 {
			t.Errorf("a page of jobs has %d bytes, want 5 MiB at most", size)
		}
		list := into[page[dispatcher.Job]](response)
		for _, job := range list.Items {
			got = append(got, job.Name)
		}
		if list.Next == "" {
			break
		}
		cursor = "&cursor=" + list.Next
	}
	if !slices.Equal(got, want) || pages < 2 {
		t.Errorf("%d pages list %v, want some pages with %v", pages+1, got, want)
	}
	exact := into[page[dispatcher.Job]](w.must(http.StatusOK, "GET", oneApp+"/jobs?limit=5", ""))
	if len(exact.Items) != 5 || exact.Next != "large-04" {
		t.Errorf("limit=5: got %d jobs, next %s", len(exact.Items), exact.Next)
	}
}
