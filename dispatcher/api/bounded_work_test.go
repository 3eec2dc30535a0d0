package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/api"
)

// costlyCalendar excludes every minute of the day except one, one by one.
const costlyCalendar = `{"rules":[{"expression":"0 * 0-2,4-23 * * ?"},{"expression":"0 0-16,18-59 3 * * ?"}]}`

// costlyJob has a hundred triggers, each with a day of steps to its next fire.
func costlyJob() string {
	var b strings.Builder
	b.WriteString(`{"target":{"webhook":{"url":"https://example.com/"}},"triggers":{`)
	for i := range 100 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"t%d":{"expression":"* * * * *","timezone":"UTC","calendar":"costly"}`, i)
	}
	b.WriteString(`}}`)
	return b.String()
}

// T5: 91 calendars that build on each other were accepted, and one preview took 2.7 s of processor.
func TestCalendarsThatCostTooMuchInTotalAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	var bases []string
	for level := range 6 {
		bases = bases[:0]
		for i := range 10 {
			bases = append(bases, fmt.Sprintf(`"c%d-%d"`, level-1, i))
		}
		for i := range 10 {
			body := `{"rules":[{"dates":["12-25"]}]}`
			if level > 0 {
				body = `{"bases":[` + strings.Join(bases, ",") + `]}`
			}
			path := fmt.Sprintf("/v1/apps/crm/calendars/c%d-%d", level, i)
			if level == 5 { // 51 calendars
				w.do("PUT", path, body).refused(422, "/bases calendar_cost")
				break
			}
			w.must(http.StatusCreated, "PUT", path, body)
		}
	}
	w.must(http.StatusOK, "POST", "/v1/schedules/preview", `{"expression":"rate(5m)","app":"crm","calendar":"c4-0","count":100}`)
}

// T5: the evaluation of a costly schedule ends with a remedy, and holds no lock meanwhile.
func TestCostlySchedulesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusCreated, "PUT", "/v1/apps/crm/calendars/costly", costlyCalendar)
	// The problem means that the count of steps ended the search: unbounded, it would find the fires, after minutes.
	w.do("POST", "/v1/schedules/preview", `{"expression":"* * * * *","timezone":"UTC","app":"crm","calendar":"costly","count":100,
		"from":"2026-01-01T03:20:00Z"}`).refused(422, "/calendar calendar_cost")
	w.must(http.StatusUnprocessableEntity, "PUT", "/v1/apps/crm/jobs/costly", costlyJob()).says(`"calendar_cost"`)
	w.must(http.StatusOK, "GET", "/v1/apps/crm", "")
}
