package store

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// column is a column of a batch.
type column struct {
	name string
	typ  columnType
}

// columnType is the type of a column, as PostgreSQL names it.
type columnType string

const (
	bigint  columnType = "bigint"
	integer columnType = "integer"
	text    columnType = "text"
	boolean columnType = "boolean"
)

// names joins the columns' names.
func names(columns []column) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = c.name
	}
	return strings.Join(list, ", ")
}

// The columns of the batches, in the order of their parameters.
var (
	advanceColumns = []column{
		{"id", bigint}, {"revision", bigint}, {"calendars", bigint}, {"prev", bigint}, {"next", bigint}, {"upto", bigint}, {"upto_due", bigint},
	}
	settleColumns = append(advanceColumns[:7:7],
		column{"to_at", bigint}, column{"missed", bigint}, column{"decision", text}, column{"reason", text}, column{"run_at", bigint})
	keyColumns    = []column{{"scheduled_at", bigint}, {"trigger_id", bigint}, {"kind", integer}, {"token", bigint}, {"attempt", integer}}
	recordColumns = append(keyColumns[:5:5],
		column{"node", bigint}, column{"started_at", bigint}, column{"ended_at", bigint}, column{"http_status", integer},
		column{"state", text}, column{"class", text}, column{"error", text})
	againColumns = append(recordColumns[:12:12],
		column{"next_at", bigint}, column{"until_at", bigint}, column{"spent", integer}, column{"unmade", integer}, column{"stops", boolean})
	responseColumns     = []column{{"scheduled_at", bigint}, {"trigger_id", bigint}, {"kind", integer}, {"attempt", integer}, {"response", text}}
	lateColumns         = append(recordColumns[:12:12], column{"late", text})
	scheduleNextColumns = []column{
		{"id", bigint}, {"revision", bigint}, {"calendars", bigint}, {"prev", bigint}, {"anchor", bigint}, {"next", bigint}, {"due", bigint},
	}
	misfireColumns = []column{
		{"from_at", bigint}, {"to_at", bigint}, {"trigger_id", bigint}, {"job_id", bigint}, {"missed", bigint},
		{"decision", text}, {"reason", text}, {"decided_at", bigint},
	}
	endColumns     = append(keyColumns[:5:5], column{"error", text})
	slotColumns    = append(keyColumns[:5:5], column{"node", bigint}, column{"job_id", bigint})
	idColumns      = []column{{"id", bigint}}
	nameColumns    = []column{{"name", text}}
	rearmedColumns = []column{
		{"of_trigger", bigint}, {"revision", bigint}, {"calendars", bigint}, {"from_at", bigint}, {"next", bigint}, {"due", bigint}, {"state", text}, {"error", text},
	}
	lockColumns = []column{{"name", text}, {"holder", bigint}, {"fence", bigint}}
	// Two lists side by side, the shorter filled up with empty texts.
	adoptColumns = []column{{"name", text}, {"labels", text}}
)

// length returns how many rows a batch has.
func length(columns []any) int {
	switch c := columns[0].(type) {
	case []int64:
		return len(c)
	case []*int64:
		return len(c)
	case []int32:
		return len(c)
	case []string:
		return len(c)
	case []bool:
		return len(c)
	}
	panic(fmt.Sprintf("batch of %T", columns[0]))
}

// appendJSON appends the value of a column in row i.
func appendJSON(b []byte, column any, i int) []byte {
	switch c := column.(type) {
	case []int64:
		return strconv.AppendInt(b, c[i], 10)
	case []int32:
		return strconv.AppendInt(b, int64(c[i]), 10)
	case []bool:
		return strconv.AppendBool(b, c[i])
	case []*int64:
		if c[i] == nil {
			return append(b, "null"...)
		}
		return strconv.AppendInt(b, *c[i], 10)
	case []string:
		text, err := json.Marshal(c[i])
		if err != nil {
			panic(err) // a string always marshals
		}
		return append(b, text...)
	}
	panic("batch of an unknown type")
}
