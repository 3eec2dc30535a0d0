// Package kit has what the pages of the console are made of: charts, texts, times in a zone, badges, and the fields of forms. It knows
// neither requests nor pages: a Reader tells it who reads, and when.
package kit
