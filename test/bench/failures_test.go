package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestTransitionUnderTwoEventIDsCountsAsDouble(t *testing.T) {
	t.Parallel()
	var c counter
	for _, one := range []struct{ id, body string }{
		{"a", `{"job":"sync","condition":"failure","sequence":1}`},
		{"a", `{"job":"sync","condition":"failure","sequence":1}`}, // another attempt
		{"b", `{"job":"sync","condition":"failure","sequence":1}`},
		{"c", `{"job":"sync","condition":"failure","sequence":2}`},
	} {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(one.body))
		q.Header.Set("webhook-id", one.id)
		c.take(httptest.NewRecorder(), q)
	}
	if told, doubled := c.count(), c.doubled(); told != 2 || doubled != 1 {
		t.Errorf("%d transitions told and %d doubled, want 2 and 1", told, doubled)
	}
}
