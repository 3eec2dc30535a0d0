package invoke_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

func TestRetryAfterIsReadAndInvalidValuesIgnored(t *testing.T) {
	t.Parallel()
	const none = -1
	date := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	in := func(d time.Duration) string { return date.Add(d).Format(http.TimeFormat) }
	for name, tt := range map[string]struct {
		status int
		text   string
		want   time.Duration
	}{
		"seconds":                        {429, "120", 2 * time.Minute},
		"seconds of an outage":           {503, "7", 7 * time.Second},
		"none":                           {503, "0", 0},
		"blanks around":                  {429, " 5 ", 5 * time.Second},
		"a billion":                      {429, "1000000000", 1e9 * time.Second},
		"more than a number holds":       {429, "99999999999999999999999999", 1e9 * time.Second},
		"a date by the response's clock": {503, in(90 * time.Second), 90 * time.Second},
		"a date that is past":            {503, in(-time.Hour), 0},
		"a date of RFC 850":              {503, date.Add(time.Minute).Format("Monday, 02-Jan-06 15:04:05 GMT"), time.Minute},
		"negative":                       {429, "-5", none},
		"signed":                         {429, "+5", none},
		"a fraction":                     {429, "1.5", none},
		"with a unit":                    {429, "5s", none},
		"hexadecimal":                    {429, "0x10", none},
		"a list":                         {429, "5, 6", none},
		"an instant in another form":     {429, "2026-05-01T10:00:30Z", none},
		"words":                          {429, "soon", none},
		"empty":                          {429, "", none},
		"ignored with a success":         {200, "120", none},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", date.Format(http.TimeFormat))
				w.Header().Set("Retry-After", tt.text)
				w.WriteHeader(tt.status)
			}))
			defer server.Close()
			o := newInvoker(t).Invoke(t.Context(), callTo(server.URL, "POST", ample))
			got := time.Duration(none)
			if o.RetryAfter != nil {
				got = *o.RetryAfter
			}
			if got != tt.want || (o.State == run.Succeeded) != (tt.status == 200) {
				t.Errorf("outcome = %+v, wait %v, want %v", o, got, tt.want)
			}
		})
	}
}
