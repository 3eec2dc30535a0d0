package provider_test

import (
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/test/need"
)

func TestAppDataSourceShowsPauses(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	f := newFixture(t)
	const data = "data.carillon_app.read"
	config := f.config(`
		resource "carillon_app" "a" {
			name = "crm"
		}
		data "carillon_app" "read" {
			name = carillon_app.a.name
		}
	`)
	until := time.Date(2099, 5, 1, 10, 0, 0, 0, time.UTC)
	f.run(t,
		resource.TestStep{Config: config, Check: resource.TestCheckResourceAttr(data, "pauses.#", "0")},
		resource.TestStep{
			PreConfig: func() {
				for _, asked := range []dispatcher.AppPauseRequest{
					{Labels: input.Labels{"team": "payments"}, Reason: "a migration", Until: &until}, {},
				} {
					if _, err := f.outside.PauseApp(t.Context(), "crm", asked); err != nil {
						t.Fatal(err)
					}
				}
			},
			Config: config,
			Check: resource.ComposeTestCheckFunc(
				resource.TestCheckResourceAttr(data, "pauses.#", "2"),
				resource.TestCheckResourceAttrSet(data, "pauses.0.id"),
				resource.TestCheckResourceAttr(data, "pauses.0.labels.team", "payments"),
				resource.TestCheckResourceAttr(data, "pauses.0.reason", "a migration"),
				resource.TestCheckResourceAttr(data, "pauses.0.paused_by", "terraform"),
				resource.TestCheckResourceAttrSet(data, "pauses.0.paused_at"),
				resource.TestCheckResourceAttr(data, "pauses.0.until", "2099-05-01T10:00:00Z"),
				resource.TestCheckNoResourceAttr(data, "pauses.1.until"),
				resource.TestCheckNoResourceAttr(data, "pauses.1.labels"),
			),
		},
	)
}
