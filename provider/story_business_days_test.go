package provider_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/test/need"
)

// businessDays are the business days of England in 2033 from a paper calendar, by month, with the
// offset of London: summer time is from March 27 to October 30.
const businessDays = `
	01 +00:00 4 5 6 7  10 11 12 13 14  17 18 19 20 21  24 25 26 27 28  31
	02 +00:00 1 2 3 4  7 8 9 10 11  14 15 16 17 18  21 22 23 24 25  28
	03 +00:00 1 2 3 4  7 8 9 10 11  14 15 16 17 18  21 22 23 24 25
	03 +01:00 28 29 30 31
	04 +01:00 1  4 5 6 7 8  11 12 13 14  19 20 21 22  25 26 27 28 29
	05 +01:00 3 4 5 6  9 10 11 12 13  16 17 18 19 20  23 24 25 26 27  31
	06 +01:00 1 2 3  6 7 8 9 10  13 14 15 16 17  20 21 22 23 24  27 28 29 30
	07 +01:00 1  4 5 6 7 8  11 12 13 14 15  18 19 20 21 22  25 26 27 28 29
	08 +01:00 1 2 3 4 5  8 9 10 11 12  15 16 17 18 19  22 23 24 25 26  30 31
	09 +01:00 1 2  5 6 7 8 9  12 13 14 15 16  19 20 21 22 23  26 27 28 29 30
	10 +01:00 3 4 5 6 7  10 11 12 13 14  17 18 19 20 21  24 25 26 27 28
	10 +00:00 31
	11 +00:00 1 2 3 4  7 8 9 10 11  14 15 16 17 18  21 22 23 24 25  28 29 30
	12 +00:00 1 2  5 6 7 8 9  12 13 14 15 16  19 20 21 22 23  28 29 30`

// paydays are the last business days of each month.
const paydays = `
	Mon 2033-01-31 09:00:00 +00:00
	Mon 2033-02-28 09:00:00 +00:00
	Thu 2033-03-31 09:00:00 +01:00
	Fri 2033-04-29 09:00:00 +01:00
	Tue 2033-05-31 09:00:00 +01:00
	Thu 2033-06-30 09:00:00 +01:00
	Fri 2033-07-29 09:00:00 +01:00
	Wed 2033-08-31 09:00:00 +01:00
	Fri 2033-09-30 09:00:00 +01:00
	Mon 2033-10-31 09:00:00 +00:00
	Wed 2033-11-30 09:00:00 +00:00
	Fri 2033-12-30 09:00:00 +00:00`

// invoices are sent on the 1st and the 15th, or on the next business day. January 1 is a Saturday
// with a substitute holiday on Monday; April 15 is Good Friday.
const invoices = `
	Tue 2033-01-04 08:00:00 +00:00
	Mon 2033-01-17 08:00:00 +00:00
	Tue 2033-02-01 08:00:00 +00:00
	Tue 2033-02-15 08:00:00 +00:00
	Tue 2033-03-01 08:00:00 +00:00
	Tue 2033-03-15 08:00:00 +00:00
	Fri 2033-04-01 08:00:00 +01:00
	Tue 2033-04-19 08:00:00 +01:00
	Tue 2033-05-03 08:00:00 +01:00
	Mon 2033-05-16 08:00:00 +01:00
	Wed 2033-06-01 08:00:00 +01:00
	Wed 2033-06-15 08:00:00 +01:00
	Fri 2033-07-01 08:00:00 +01:00
	Fri 2033-07-15 08:00:00 +01:00
	Mon 2033-08-01 08:00:00 +01:00
	Mon 2033-08-15 08:00:00 +01:00
	Thu 2033-09-01 08:00:00 +01:00
	Thu 2033-09-15 08:00:00 +01:00
	Mon 2033-10-03 08:00:00 +01:00
	Mon 2033-10-17 08:00:00 +01:00
	Tue 2033-11-01 08:00:00 +00:00
	Tue 2033-11-15 08:00:00 +00:00
	Thu 2033-12-01 08:00:00 +00:00
	Thu 2033-12-15 08:00:00 +00:00`

// listed returns the non-empty lines of a text, trimmed.
func listed(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// mornings returns 08:00 of each business day, without the weekday.
func mornings() []string {
	var all []string
	for _, line := range listed(businessDays) {
		fields := strings.Fields(line)
		for _, day := range fields[2:] {
			all = append(all, fmt.Sprintf("2033-%s-%02s 08:00:00 %s", fields[0], day, fields[1]))
		}
	}
	return all
}

// A story: fires limited to business days move to the next or the previous one and keep their time
// of day, through a whole year with its holidays and both clock changes.
func TestStoryBusinessDaysOfAYearMatchAList(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		const dir = "testdata/business_days/"
		main := contents(t, dir+"main.tf")
		moves := strings.NewReplacer(`"next_day"`, `"skip"`, `"previous_day"`, `"skip"`)
		d := f.directory(t, moves.Replace(main), providerBlock(""))
		d.must(t, "apply", "-auto-approve")
		d.rewrite(t, strings.NewReplacer(`"next_day"`, `"next_included"`, `"previous_day"`, `"next_included"`).Replace(main))
		golden(t, dir+"moved_hour.txt", warningsOf(t, d.must(t, "plan")))
		d.rewrite(t, main)
		golden(t, dir+"fires.txt", warningsOf(t, d.must(t, "plan")))
		d.must(t, "apply", "-auto-approve")
		mustChangeNothing(t, d)

		d.rewrite(t, main+contents(t, dir+"year.tf"))
		d.must(t, "apply", "-auto-approve")
		var got struct {
			Fires struct{ Value map[string][]string }
			Next  struct{ Value map[string]string }
		}
		if err := json.Unmarshal([]byte(d.must(t, "output", "-json")), &got); err != nil {
			t.Fatal(err)
		}
		for i, at := range got.Fires.Value["mornings"] {
			_, got.Fires.Value["mornings"][i], _ = strings.Cut(at, " ")
		}
		want := map[string][]string{"mornings": mornings(), "payday": listed(paydays), "invoices": listed(invoices)}
		if diff := cmp.Diff(want, got.Fires.Value); diff != "" {
			t.Errorf("fires of 2033 (-want +got):\n%s", diff)
		}
		next := map[string]string{
			"mornings": "2033-01-04T08:00:00Z", "payday": "2033-01-31T09:00:00Z", "invoices": "2033-01-04T08:00:00Z",
		}
		if diff := cmp.Diff(next, got.Next.Value); diff != "" {
			t.Errorf("next fire times (-want +got):\n%s", diff)
		}
	})
}
