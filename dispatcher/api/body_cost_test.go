package api_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/test/badinput"
)

// placeholders are names in the paths of routes; declare makes some of these objects.
var placeholders = strings.NewReplacer("{app}", "crm", "{job}", "sync", "{trigger}", "nightly", "{calendar}", "holidays",
	"{group}", "workers", "{endpoint}", "one", "{alert}", "late", "{backfill}", "b", "{bulk}", "b", "{run}", "r", "{node}", "n",
	"{token}", "other", "{pause}", "p")

// No route takes more memory for a hostile body than 20 times its size, and none refuses one with more than 100 KiB.
func TestNoRouteTakesMuchMemoryForABody(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusCreated, http.MethodPut, "/v1/apps/crm/calendars/holidays", `{"rules":[{"dates":["12-25"]}]}`)
	bodies, routes := badinput.HostileBodies(256<<10), 0
	for _, rt := range api.Routes() {
		if !rt.Body {
			continue
		}
		routes++
		for name, body := range bodies {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := w.once(rt.Method, placeholders.Replace(rt.Path), body)
			runtime.ReadMemStats(&after)
			took := int(after.TotalAlloc - before.TotalAlloc) //nolint:gosec // far less
			took -= 2 * got.Body.Len()                        // of the recorder, which copies when it grows
			if took > 20*len(body)+4<<20 || got.Code >= 400 && got.Body.Len() > 100<<10 {
				t.Errorf("%s %s, %s: %d bytes allocate %d and get a %d of %d bytes", rt.Method, rt.Path, name, len(body), took,
					got.Code, got.Body.Len())
			}
		}
	}
	if routes < 30 {
		t.Errorf("%d routes take a body", routes)
	}
}

// costlyBodies are bodies whose work is not decoding, by their route.
func costlyBodies() []struct{ name, method, path, body string } {
	job := func(target, rest string) string {
		return `{"target":{"webhook":{"url":"https://example.com/"` + target + `}}` + rest + `}`
	}
	triggers := func(format string) string {
		var b strings.Builder
		for i := range 100 {
			fmt.Fprintf(&b, `,"t%d":`+format, i)
		}
		return `,"triggers":{` + b.String()[1:] + `}`
	}
	const preview = "/v1/schedules/preview"
	return []struct{ name, method, path, body string }{
		{"a hundred triggers of leap days", http.MethodPut, oneJob,
			job("", triggers(`{"expression":"0 0 0 29 2 ? 2096","timezone":"America/New_York"}`))},
		{"a hundred triggers of every minute that a calendar excludes", http.MethodPut, oneJob,
			job("", triggers(`{"expression":"* * * * *","timezone":"UTC","calendar":"costly"}`))},
		{"a hundred triggers of long lists", http.MethodPut, oneJob, job("", triggers(`{"expression":"`+strings.Repeat("0-59,", 40)+
			`0 `+strings.Repeat("0-59,", 40)+`0 * * * ?","timezone":"UTC"}`))},
		{"a long regular expression", http.MethodPut, oneJob, job(`,"expect_body":"`+strings.Repeat("(a|b)*", 80)+`"`, "")},
		{"a repeated regular expression", http.MethodPut, oneJob, job(`,"expect_body":"((a{30}){30}){1}"`, "")},
		{"a template of many actions", http.MethodPut, oneJob,
			job(`,"body":"`+strings.Repeat(`{{.Job}}`, 5000)+`"`, "")},
		{"a deep template", http.MethodPut, oneJob,
			job(`,"body":"`+strings.Repeat(`{{if .Job}}`, 2000)+strings.Repeat(`{{end}}`, 2000)+`"`, "")},
		{"a calendar of many rules", http.MethodPut, "/v1/apps/crm/calendars/many",
			`{"rules":` + manyOf(20, `{"expression":"0 * 1-23 * * ?"}`) + `}`},
		{"a calendar of many dates", http.MethodPut, "/v1/apps/crm/calendars/many", `{"rules":[{"dates":` + manyOf(300, `"12-25"`) + `}]}`},
		{"a calendar of many events", http.MethodPut, "/v1/apps/crm/calendars/many",
			`{"rules":[{"icalendar":"BEGIN:VCALENDAR\r\nVERSION:2.0\r\n` +
				strings.Repeat(`BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20200101\r\nRRULE:FREQ=DAILY\r\nEND:VEVENT\r\n`, 500) + `END:VCALENDAR\r\n"}]}`},
		{"a preview of a rare day", http.MethodPost, preview, `{"expression":"0 0 0 29 2 ? ","timezone":"UTC","count":100}`},
		{"a preview of what never fires", http.MethodPost, preview, `{"expression":"0 0 0 31 2 ?","timezone":"UTC","count":100}`},
		{"a preview of what a calendar excludes", http.MethodPost, preview,
			`{"expression":"* * * * *","timezone":"UTC","app":"crm","calendar":"costly","count":100}`},
		{"a preview of a year", http.MethodPost, preview, `{"expression":"0 0 3 ? 2 MON#5 2000-2099","timezone":"Europe/Berlin","count":100}`},
	}
}

// More than 50 ms of processor for each KiB of a body is a fault. This prints the times; less than a KiB counts as one.
func BenchmarkBodies(b *testing.B) {
	run := func(name, method, path, body string) {
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			w := newWorld(b, api.Options{})
			w.declare()
			w.must(http.StatusCreated, http.MethodPut, "/v1/apps/crm/calendars/costly", costlyCalendar)
			var got reply
			for b.Loop() {
				got = w.do(method, path, body)
			}
			kib := max(1, float64(len(body))/1024)
			b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N)/kib, "ms/KiB")
			b.ReportMetric(float64(got.Code), "status")
			b.ReportMetric(float64(got.Body.Len()), "bytes")
		})
	}
	for _, one := range costlyBodies() {
		run(one.name, one.method, one.path, one.body)
	}
	for name, body := range badinput.HostileBodies(1 << 20) {
		run("decode "+name, http.MethodPut, oneJob, body)
	}
}
