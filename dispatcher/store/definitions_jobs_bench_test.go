package store_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// BenchmarkPutJob measures a change of a job with a payload of 1 KiB, a stored secret and two triggers, with its entry
// in the audit log.
func BenchmarkPutJob(b *testing.B) {
	b.Run("PostgreSQL", func(b *testing.B) { benchPutJob(b, pgtest.New(b, pgtest.Fsync)) })
	b.Run("SQLite", func(b *testing.B) { benchPutJob(b, newFile(b)) })
}

func benchPutJob(b *testing.B, database string) {
	keys, err := seal.Parse(base64.StdEncoding.EncodeToString(make([]byte, 32)))
	must(b, err)
	s := openAs(b, database, store.Options{Keys: keys})
	change := input.Change{Actor: "bench"}
	_, _, err = s.PutApp(b.Context(), access.App{Name: "bench", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(b, err)
	trigger := dispatcher.Trigger{
		TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "0 0 9 * * ?"},
			MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true},
	}
	put := func(i int) {
		_, _, err := s.PutJob(b.Context(), dispatcher.Job{
			App: "bench", Name: "job", JobSpec: dispatcher.JobSpec{Enabled: true, Description: fmt.Sprint("change ", i),
				Triggers: map[string]dispatcher.Trigger{"a": trigger, "b": trigger},
				Payload:  []byte(`"` + strings.Repeat("x", 1000) + `"`),
				Target: target.Target{Webhook: &target.Webhook{
					URL: "https://example.com/hook", Method: "POST", Timeout: target.DefaultTimeout,
					Auth: &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Value: input.NewSensitive("secret")}}},
				}}},
		}, change)
		must(b, err)
	}
	put(-1)
	b.ResetTimer()
	for i := range b.N {
		put(i)
	}
}
