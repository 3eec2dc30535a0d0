package worker

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/lambda"
)

// eventOf returns what a request of Carillon says. Without a payload its body describes the fire, which the headers do, too.
func eventOf(header http.Header, body []byte) (lambda.Event, error) {
	fire := lambda.Fire{
		EventID: header.Get("Webhook-Id"), App: header.Get("Carillon-App"), Job: header.Get("Carillon-Job"),
		Trigger: header.Get("Carillon-Trigger"), Run: header.Get("Carillon-Run"), Kind: header.Get("Carillon-Kind"),
		Traceparent: header.Get("Traceparent"),
	}
	var err error
	if fire.ScheduledAt, err = time.Parse(time.RFC3339, header.Get("Carillon-Scheduled-At")); err != nil {
		return lambda.Event{}, err
	}
	if fire.Attempt, err = strconv.Atoi(header.Get("Carillon-Attempt")); err != nil {
		return lambda.Event{}, err
	}
	if fire.Fence, err = strconv.ParseInt(header.Get("Carillon-Fence"), 10, 64); err != nil {
		return lambda.Event{}, err
	}
	if header.Get("Carillon-Missed-Count") != "" {
		if fire.Missed, err = missedOf(header); err != nil {
			return lambda.Event{}, err
		}
	}
	event := lambda.Event{Carillon: fire}
	if !describes(body, fire) {
		event.Payload = body
	}
	return event, nil
}

func missedOf(header http.Header) (*lambda.Missed, error) {
	from, err := time.Parse(time.RFC3339, header.Get("Carillon-Missed-From"))
	if err != nil {
		return nil, err
	}
	to, err := time.Parse(time.RFC3339, header.Get("Carillon-Missed-To"))
	if err != nil {
		return nil, err
	}
	count, err := strconv.Atoi(header.Get("Carillon-Missed-Count"))
	return &lambda.Missed{From: from, To: to, Count: count}, err
}

// describes tells whether a body is the description of a fire that a job without a payload sends.
func describes(body []byte, fire lambda.Fire) bool {
	var text struct {
		App string `json:"app"`
		Job string `json:"job"`
		Run string `json:"run"`
	}
	return len(body) == 0 ||
		json.Unmarshal(body, &text) == nil && text.Run == fire.Run && text.App == fire.App && text.Job == fire.Job
}
