package main

import (
	"strings"
	"testing"
)

func TestClocksOfTestsAreFound(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ body, want string }{
		"a bound on time":         {"took := time.Since(began)", "time.Since"},
		"the remaining time":      {"if time.Until(end) < 0 {}", "time.Until"},
		"a bound with its reason": {"took := time.Since(began) // wall clock: it is about a timeout", ""},
		"an empty reason":         {"took := time.Since(began) // wall clock: ", "time.Since"},
		"virtual time":            {"synctest.Test(t, func(t *testing.T) { _ = time.Since(began) })", ""},
		"a short deadline":        {"select { case <-time.After(5 * time.Second): }", "time.After"},
		"a second":                {"select { case <-time.After(time.Second): }", "time.After"},
		"a deadline of minutes":   {"select { case <-time.After(5 * time.Minute): }", ""},
		"a deadline of a name":    {"select { case <-time.After(waitLimit): }", ""},
		"a wait for a state":      {"for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); {}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := findClocks(source(t, "func TestA(t *testing.T) {\n"+tt.body+"\n}\n"))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(found, "\n")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) || tt.want != "" && !strings.HasPrefix(got, "pkg/a_test.go:3: ") {
				t.Errorf("got %q, want %q at pkg/a_test.go:3", got, tt.want)
			}
		})
	}
}
