package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed texts/*.json
var textFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// assets are the files that pages refer to. Their names hold their sums, so that browsers may keep them for good.
type assets struct {
	names  map[string]string // as served, by their own
	files  map[string][]byte // by names as served
	byType map[string]string
}

func loadAssets() (*assets, error) {
	a := &assets{names: map[string]string{}, files: map[string][]byte{}, byType: map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	}}
	found, err := fs.Glob(assetFiles, "assets/*")
	if err != nil {
		return nil, err
	}
	for _, file := range found {
		raw, err := assetFiles.ReadFile(file)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(raw)
		name, extension := path.Base(file), path.Ext(file)
		served := strings.TrimSuffix(name, extension) + "-" + hex.EncodeToString(sum[:6]) + extension
		a.names[name], a.files[served] = served, raw
	}
	return a, nil
}

// serve serves a file.
func (a *assets) serve(v *visit) {
	name := v.PathValue("asset")
	raw, found := a.files[name]
	if !found {
		v.fail(notFound("file", name))
		return
	}
	v.w.Header().Set("Content-Type", a.byType[path.Ext(name)])
	v.w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	if v.Method != http.MethodHead {
		_, _ = v.w.Write(raw) // the browser may have gone
	}
}
