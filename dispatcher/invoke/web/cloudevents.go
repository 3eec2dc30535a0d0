package web

import (
	"encoding/json"
	"net/http"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// eventType is the type of all CloudEvents that Carillon sends.
const eventType = "dev.carillon.run"

// eventSource names the job. Source and event id together are unique.
func eventSource(call target.Call) string { return "/apps/" + call.App + "/jobs/" + call.Job }

// setEvent sets the headers of a CloudEvent in binary mode.
func setEvent(h http.Header, call target.Call) {
	h["Ce-Specversion"] = []string{"1.0"}
	h["Ce-Id"] = []string{call.EventID}
	h["Ce-Source"] = []string{eventSource(call)}
	h["Ce-Type"] = []string{eventType}
	h["Ce-Time"] = []string{input.FormatInstant(call.Key.ScheduledAt)}
	if call.Trigger != "" {
		h["Ce-Subject"] = []string{call.Trigger}
	}
}

// envelope returns the body of a CloudEvent in structured mode.
func envelope(call target.Call, data json.RawMessage) ([]byte, error) {
	return json.Marshal(struct {
		SpecVersion string          `json:"specversion"`
		ID          string          `json:"id"`
		Source      string          `json:"source"`
		Type        string          `json:"type"`
		Time        string          `json:"time"`
		Subject     string          `json:"subject,omitempty"`
		ContentType string          `json:"datacontenttype"`
		Data        json.RawMessage `json:"data"`
	}{
		"1.0", call.EventID, eventSource(call), eventType, input.FormatInstant(call.Key.ScheduledAt), call.Trigger,
		"application/json", data,
	})
}
