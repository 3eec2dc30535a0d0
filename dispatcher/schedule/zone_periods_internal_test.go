package schedule

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The table must not change a result: an instant has the offset of its location, and its period
// ends where that offset ends.
func TestPeriodTableAgreesWithTheLocation(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range CurrentZones().Names() {
		z, err := zone(name)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			instant := tabledFrom + r.Int64N(tabledUntil-tabledFrom)
			if r.IntN(2) == 0 { // close to a jump
				instant = z.at(instant).end - 1 + r.Int64N(3)
			}
			if instant < tabledFrom || instant >= tabledUntil {
				continue
			}
			got := z.at(instant)
			_, offset := time.Unix(instant, 0).In(z.loc).Zone()
			_, before := time.Unix(got.end-1, 0).In(z.loc).Zone()
			if got.offset != int64(offset) || got.start > instant || got.end <= instant || before != offset {
				t.Errorf("%s at %d: period %+v, want one around it of offset %d", name, instant, got, offset)
			}
		}
	}
}
