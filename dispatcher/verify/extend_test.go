package verify_test

import (
	"reflect"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// Every count of a trigger is the sum over all parts of the period.
func TestExtendSumsEveryCount(t *testing.T) {
	t.Parallel()
	var sum, part verify.Trigger
	fields := reflect.ValueOf(&part).Elem()
	for i := range fields.NumField() {
		if f := fields.Field(i); f.Kind() == reflect.Int {
			f.SetInt(int64(i) + 1)
		}
	}
	sum.Extend(part)
	sum.Extend(part)
	for i := range fields.NumField() {
		name, got := fields.Type().Field(i).Name, reflect.ValueOf(sum).Field(i)
		if want := 2 * (int64(i) + 1); got.Kind() == reflect.Int && got.Int() != want {
			t.Errorf("%s is %d, want the sum %d", name, got.Int(), want)
		}
	}
}
