package worker

import (
	"encoding/json"
	"fmt"
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
		Callback: lambda.Callback{URL: header.Get("Carillon-Callback-URL"), Token: header.Get("Carillon-Callback-Token"),
			Timeout: header.Get("Carillon-Callback-Timeout")},
	}
	if state := header.Get("Carillon-State"); state != "" {
		fire.State = json.RawMessage(state)
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
	if header.Get("Carillon-Shard-Total") != "" {
		if fire.ShardIndex, fire.ShardTotal, err = shardOf(header); err != nil {
			return lambda.Event{}, err
		}
	}
	if on := header.Get("Carillon-Parent-Event"); on != "" {
		fire.Cause = &lambda.Cause{
			Run: header.Get("Carillon-Parent-Run"), On: on, State: header.Get("Carillon-Parent-State"),
			Class: header.Get("Carillon-Parent-Class"), Error: header.Get("Carillon-Parent-Error"),
		}
	}
	event := lambda.Event{Carillon: fire}
	if !describes(body, fire) {
		event.Payload = body
	}
	return event, nil
}

// shardOf returns which part of a broadcast a request is.
func shardOf(header http.Header) (index, total int, err error) {
	if index, err = strconv.Atoi(header.Get("Carillon-Shard-Index")); err == nil {
		total, err = strconv.Atoi(header.Get("Carillon-Shard-Total"))
	}
	if err == nil && (index < 0 || index >= total) {
		err = fmt.Errorf("shard %d of %d: the index is from 0 to the total - 1", index, total)
	}
	return index, total, err
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
