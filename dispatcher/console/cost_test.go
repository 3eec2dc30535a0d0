package console_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/console"
)

// mostOfAssets is how many bytes a browser that compresses may have to get before it can show a page.
const mostOfAssets = 60 << 10

func TestAssetsAreSmall(t *testing.T) {
	t.Parallel()
	b := newTrial(t).browse()
	found := regexp.MustCompile(`(?:href|src)="\./(assets/[^"]+)"`).FindAllStringSubmatch(b.get("login").text, -1)
	if len(found) < 3 {
		t.Fatalf("the login has the assets %q, want a script, a style and an icon", found)
	}
	var compressed bytes.Buffer
	for _, asset := range found {
		got := b.get(asset[1])
		if got.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", asset[1], got.StatusCode)
		}
		w := gzip.NewWriter(&compressed)
		if _, err := w.Write([]byte(got.text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if compressed.Len() > mostOfAssets {
		t.Errorf("the assets have %d bytes compressed, want %d at most", compressed.Len(), mostOfAssets)
	}
}

// Without a browser the console calls neither the API nor the store, and runs no code: both would panic, and the bubble
// fails if a goroutine is left.
func TestConsoleWithoutABrowserDoesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, sessions := struct{ console.API }{}, struct{ access.Sessions }{}
		if _, err := console.New(console.Options{API: api, Sessions: sessions}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
	})
}
