// Package kit has the building blocks of the console's pages: charts, texts, times in a zone, badges, and the fields of
// forms. It knows neither requests nor pages: a Reader holds the language, the zone and the time.
package kit
