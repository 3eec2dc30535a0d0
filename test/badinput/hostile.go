package badinput

import (
	"fmt"
	"strings"
)

// HostileBodies are bodies for any route that cost far more than their size if they are decoded
// carelessly. Each has size bytes, or as many elements as lists may have.
func HostileBodies(size int) map[string]string {
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
