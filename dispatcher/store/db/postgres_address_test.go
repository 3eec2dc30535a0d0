package db

import (
	"testing"
)

func TestPasswordIsMasked(t *testing.T) {
	t.Parallel()
	for database, want := range map[string]string{
		"postgres://u:p@h/d":            "postgres://u:xxxxx@h/d",
		"postgres://u:p@x:y@h/d":        "postgres://u:xxxxx@h/d",
		"postgres://u@h/d?sslmode=a":    "postgres://u@h/d?sslmode=a",
		"postgres:///d?password=p&x=1":  "postgres:///d?password=xxxxx&x=1",
		"u:p@h":                         "u:xxxxx@h",
		"postgres://h/d?sslpassword=%p": "postgres://h/d?sslpassword=xxxxx",
	} {
		if got := mask(database); got != want {
			t.Errorf("mask %s: got %s, want %s", database, got, want)
		}
	}
}
