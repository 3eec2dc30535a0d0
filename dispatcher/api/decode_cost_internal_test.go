package api

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// hostileBodies are bodies for any route that cost far more than their size if they are decoded without care. Each is of a size in
// bytes, or has as many elements as lists may have.
func hostileBodies(size int) map[string]string {
	fill := func(before, element, after string) string {
		return before + element + strings.Repeat(","+element, (size-100-len(before)-len(after))/(len(element)+1)-1) + after
	}
	numbered := func(before, format, after string) string {
		var b strings.Builder
		b.WriteString(before)
		for i := 0; b.Len() < size-200; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, format, i)
		}
		return b.String() + after
	}
	return map[string]string{
		"empty objects in a payload":      fill(`{"payload":[`, `{}`, `]}`),
		"numbers":                         fill(`{"payload":[`, `0`, `]}`),
		"numbers with exponents":          fill(`{"payload":[`, `1e9`, `]}`),
		"small objects":                   fill(`{"payload":[`, `{"a":0}`, `]}`),
		"objects of forty keys":           fill(`{"payload":[`, `{"a":0`+manyNumbers(40)+`}`, `]}`),
		"nested arrays":                   fill(`{"payload":[`, strings.Repeat(`[`, 90)+strings.Repeat(`]`, 90), `]}`),
		"nested objects":                  fill(`{"payload":[`, strings.Repeat(`{"":`, 90)+`0`+strings.Repeat(`}`, 90), `]}`),
		"distinct keys":                   numbered(`{"payload":{`, `"%x":0`, `}}`),
		"distinct keys with escapes":      numbered(`{"payload":{`, `"\n%x":0`, `}}`),
		"distinct keys written in escape": numbered(`{"payload":{`, `"\u0061%x":0`, `}}`),
		"equal keys":                      fill(`{"payload":{`, `"a":0`, `}}`),
		"unknown fields":                  numbered(`{`, `"%x":0`, `}`),
		"long keys":                       numbered(`{`, `"`+strings.Repeat("k", 100)+`%x":0`, `}`),
		"one long key":                    `{"` + strings.Repeat("k", size-100) + `":0}`,
		"one long text":                   `{"description":"` + strings.Repeat("x", size-100) + `"}`,
		"one text of escapes":             `{"description":"` + strings.Repeat(`\u00e4`, size/6-100) + `"}`,
		"one text of short escapes":       `{"description":"` + strings.Repeat(`\n`, size/2-100) + `"}`,
		"texts with NUL":                  fill(`{"payload":[`, `"\u0000"`, `]}`),
		"many labels":                     numbered(`{"labels":{`, `"%x":""`, `}}`),
		"some labels":                     `{"labels":{` + manyPairs(9_999, `""`) + `}}`,
		"some triggers":                   `{"triggers":{` + manyPairs(9_999, `{}`) + `}}`,
		"many triggers":                   numbered(`{"triggers":{`, `"%x":{}`, `}}`),
		"triggers of one field":           numbered(`{"triggers":{`, `"%x":{"expression":"x"}`, `}}`),
		"some delays":                     `{"retry":{"delays":["1s"` + strings.Repeat(`,"1s"`, 9_998) + `]}}`,
		"many rules":                      fill(`{"rules":[`, `{}`, `]}`),
		"some rules":                      `{"rules":[{}` + strings.Repeat(`,{}`, 9_998) + `]}`,
		"rules of many dates":             fill(`{"rules":[`, `{"dates":["",""`+strings.Repeat(`,""`, 200)+`]}`, `]}`),
		"some endpoints":                  `{"endpoints":{` + manyPairs(9_999, `{}`) + `}}`,
		"some headers":                    `{"target":{"webhook":{"headers":{` + manyPairs(9_999, `""`) + `}}}}`,
	}
}

func manyNumbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%x":0`, i+16)
	}
	return b.String()
}

func manyPairs(n int, value string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `"a":%s`, value)
	for i := range n - 1 {
		fmt.Fprintf(&b, `,"k%x":%s`, i, value)
	}
	return b.String()
}

// mostMemory is what a body may cost in memory: 20 times its size, and a constant.
func mostMemory(size int) int64 { return 20*int64(size) + 4<<20 }

// allocated returns how many bytes f allocates in all, which is as much as it can ever have in use.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc) //nolint:gosec // far less
}

// Decoding a body allocates at most 20 times its size, whatever it consists of and whatever it is decoded to.
func TestDecodingAllocatesInProportionToTheBody(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	kinds := map[string]func() any{
		"job":      func() any { return &dispatcher.Job{} },
		"calendar": func() any { return &dispatcher.Calendar{} },
		"group":    func() any { return &target.EndpointGroup{} },
		"app":      func() any { return &access.App{} },
		"alert":    func() any { return &alert.Alert{} },
	}
	for name, text := range hostileBodies(maxBody) {
		for kind, create := range kinds {
			into := create()
			if got := allocated(func() { _ = decode(t.Context(), []byte(text), into) }) - int64(len(text)); got > mostMemory(len(text)) {
				t.Errorf("%s as %s: %d bytes allocate %d, which is %d times as much; want %d times at most", name, kind, len(text), got,
					got/int64(len(text)), mostMemory(len(text))/int64(len(text)))
			}
		}
	}
}
