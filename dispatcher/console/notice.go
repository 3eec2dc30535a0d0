package console

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/console/kit"
)

// noticeLife is how long a notice waits for the next page.
const noticeLife = time.Minute

// notice is what the next page tells once.
type notice struct {
	Key    string   `json:"k"`
	Values []string `json:"v"`
}

// setNotice leaves a notice for the next page.
func (v *visit) setNotice(key string, values []any) {
	n := notice{Key: key}
	for _, value := range values {
		n.Values = append(n.Values, kit.TextOf(value))
	}
	raw, err := json.Marshal(n)
	if err != nil || len(raw) > 2<<10 {
		return
	}
	v.setCookie(noticeCookie, base64.RawURLEncoding.EncodeToString(raw), noticeLife)
}

// takeNotice returns the notice for this page, and forgets it; empty: there is none.
func (v *visit) takeNotice() string {
	raw, err := base64.RawURLEncoding.DecodeString(v.cookie(noticeCookie))
	var n notice
	if err != nil || len(raw) == 0 || json.Unmarshal(raw, &n) != nil || !v.Texts.Has(n.Key) {
		return ""
	}
	v.setCookie(noticeCookie, "", 0)
	values := make([]any, len(n.Values))
	for i, value := range n.Values {
		values[i] = value
	}
	return v.Texts.Text(n.Key, values...)
}
