package console

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

//go:embed templates/*.html
var templateFiles embed.FS

// page is a screen's template with the layout. A template is bound to one visit at a time, because its functions are;
// unused ones wait in the pool.
type page struct{ pool sync.Pool }

// boundPage is a template, and the visit that its functions serve.
type boundPage struct {
	*template.Template
	visit *visit
}

// loadPages parses the templates of all screens, and of the other pages.
func loadPages(screens []screen) (map[string]*page, error) {
	names := shellPages()
	for _, s := range screens {
		names = append(names, s.name)
	}
	pages := map[string]*page{}
	for _, name := range names {
		if _, err := parsePage(name); err != nil {
			return nil, fmt.Errorf("templates/%s.html: %w", name, err)
		}
		pages[name] = &page{pool: sync.Pool{New: func() any {
			bound, err := parsePage(name)
			if err != nil {
				return err // it was parsed before
			}
			return bound
		}}}
	}
	return pages, nil
}

// shellPages are the pages that are not screens.
func shellPages() []string { return []string{"login", "problem", "starting", "outage", "token_secret"} }

func parsePage(name string) (*boundPage, error) {
	b := &boundPage{}
	parsed := template.New("layout.html").Option("missingkey=error").Funcs(b.functions())
	found, err := fs.Glob(templateFiles, "templates/_*.html")
	if err != nil {
		return nil, err
	}
	files := append([]string{"templates/layout.html", "templates/partials.html", "templates/" + name + ".html"}, found...)
	b.Template, err = parsed.ParseFS(templateFiles, files...)
	return b, err
}

// frame is the data of the layout.
type frame struct {
	content
	Name string
	// Notice is the message of the action before; empty: none.
	Notice string
	// Problem is the problem with a form; nil: none. A page of its own shows it itself.
	Problem *problemView
	Menu    []menuItem
	// AppMenu is that of the page's app.
	AppMenu []menuItem
	// Search is the text of the search on every page.
	Search string
	// Signed is the name of the token or identity; empty: no session.
	Signed string
	settings
	Zone     kit.ZoneChoice
	Version  string
	ZoneData string // the release of the time zone data
}

// settings are the choices of a person, and what there is to choose from.
type settings struct {
	Language  string
	Languages []kit.LanguageChoice
	Theme     string
	Themes    []string
	Zones     []kit.ZoneOption
	Next      string // this page, for the settings
}

// menuItem is a link of a menu.
type menuItem struct {
	Name, Link string
	// Key is the letter that opens the page after g; empty: none.
	Key string
	// Current is the value of aria-current: "page" for this page, "true" for one above it; empty: neither.
	Current string
}

// render sends a page. It is complete before the first byte is sent, so that a failure can still be shown.
func (v *visit) render(name string, shown content) {
	body, err := v.execute(name, shown)
	if err != nil {
		v.console.log.ErrorContext(v.Context(), "page of the console not rendered", "request_id", v.id, "page", name, "err", err)
		http.Error(v.w, v.Texts.Text("problem.500"), http.StatusInternalServerError)
		return
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Request-Id", v.id)
	h.Add("Vary", "Cookie, Accept-Language")
	status := shown.Status
	if status == 0 {
		status = http.StatusOK
		tag := `"` + sum(body) + `"`
		h.Set("ETag", tag)
		if v.Header.Get("If-None-Match") == tag && h.Get("Set-Cookie") == "" {
			status, body = http.StatusNotModified, nil
		}
	}
	v.w.WriteHeader(status)
	if v.Method != http.MethodHead {
		_, _ = v.w.Write(body) // the browser may have disconnected
	}
}

// sum identifies a content.
func sum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:12])
}

func (v *visit) execute(name string, shown content) ([]byte, error) {
	p := v.console.pages[name]
	if p == nil {
		return nil, fmt.Errorf("there is no page %s", name)
	}
	got := p.pool.Get()
	bound, is := got.(*boundPage)
	if !is {
		return nil, fmt.Errorf("parse: %v", got)
	}
	bound.visit = v
	var b bytes.Buffer
	err := bound.ExecuteTemplate(&b, "layout.html", v.frame(name, shown))
	bound.visit = nil
	p.pool.Put(bound)
	// Texts of tenants may hold characters that hide or reverse the text around them; our own texts have none.
	return []byte(input.ShownText(b.String(), "\n\t\r")), err
}

// frame returns the data of the layout around a page.
func (v *visit) frame(name string, shown content) frame {
	f := frame{
		content: shown, Name: name,
		settings: settings{v.Texts.Language, v.console.languages.Choices(), v.theme, themes(), v.ZoneOptions(shown.Zone), v.here()},
		Zone:     v.Zone.Choice, Version: v.console.opts.Version, ZoneData: schedule.ZonesVersion(),
	}
	if f.Title == "" {
		f.Title = v.Texts.Text(name + ".title")
	}
	if name == "login" {
		f.Next = "login"
	}
	if name != "problem" {
		f.Problem = v.problem
	}
	if v.session == nil {
		return f
	}
	f.Notice = v.takeNotice()
	f.Signed, f.App = v.token.Name, cmp.Or(v.PathValue("app"), shown.App)
	if name == "search" {
		f.Search = v.query("q")
	}
	f.Menu = v.menu(name, "")
	if f.App != "" {
		f.AppMenu = v.menu(name, f.App)
	}
	return f
}

// menu returns the links of the menu, or of that of an app.
func (v *visit) menu(name, app string) (items []menuItem) {
	keys := map[string]bool{}
	for _, s := range v.console.inMenu(app != "") {
		key := freeKey(s.name, keys) // even of a page that this person does not see: letters are the same for all
		if !v.permits(s.needs, s.allApps) {
			continue
		}
		item := menuItem{Name: s.name, Link: v.root() + s.path}
		switch _, path, _ := strings.Cut(v.Pattern, base); {
		case s.name == name:
			item.Current = "page"
		case s.path != "" && strings.HasPrefix(path, s.path+"/"), app != "" && s.name == "runs" && strings.HasPrefix(path, runPath):
			item.Current = "true"
		}
		if app != "" {
			item.Link = v.root() + strings.ReplaceAll(s.path, "{app}", url.PathEscape(app))
		} else {
			item.Key = key
		}
		items = append(items, item)
	}
	return items
}

// freeKey returns the first letter of a name that no earlier name has, and takes it.
func freeKey(name string, taken map[string]bool) string {
	for _, letter := range name {
		if key := string(letter); !taken[key] {
			taken[key] = true
			return key
		}
	}
	return ""
}

// functions are what templates can call, for the visit that the template is bound to.
func (b *boundPage) functions() template.FuncMap {
	return template.FuncMap{
		"t":    func(key string, values ...any) string { return b.visit.Texts.Text(key, values...) },
		"link": func(segments ...any) string { return b.visit.link(kit.Words(segments)...) },
		"jobLink": func(app, job string) string { // of an attached job, it leads to the alert or job that it delivers for
			owner, isAlert := strings.CutSuffix(job, dispatcher.AlertSuffix)
			if isAlert {
				return b.visit.link("apps", app, "alerts", owner)
			}
			owner, _, _ = strings.Cut(owner, ".")
			return b.visit.link("apps", app, "jobs", owner)
		},
		"query": func(to string, pairs ...any) (string, error) { return kit.AddQuery(to, pairs...) },
		"time":  func(at any, zone ...string) template.HTML { return b.visit.TimeHTML(at, zone...) },
		"ago":   func(at any) template.HTML { return b.visit.AgoHTML(at) },
		"duration": func(d any) string {
			return b.visit.Texts.Duration(d)
		},
		"bytes": kit.Bytes,
		"badge": func(state any) template.HTML { return b.visit.Badge(kit.TextOf(state)) },
		"named": func(prefix string, value any) template.HTML { return b.visit.NamedHTML(prefix, kit.TextOf(value)) },
		"nameText": func(prefix string, value any) string {
			return b.visit.Texts.WordAndValue(prefix, kit.TextOf(value))
		},
		"whyOfNode": func(n view.NodeAttention) string { return b.visit.WhyOfNode(n) },
		"may": func(scope string, app ...string) bool {
			return b.visit.may(access.Scope(scope), append(app, b.visit.PathValue("app"))[0]) // by default that of the page
		},
		"tone":  kit.Tone,
		"stamp": input.FormatInstant,
		"prose": func(text string, zone ...string) template.HTML { return b.visit.prose(text, strings.Join(zone, "")) },
		"run":   func(id string) template.HTML { return b.visit.runHTML(id) },
		"node":  func(id any) template.HTML { return b.visit.nodeHTML(kit.TextOf(id)) },
		"icon":  kit.Icon,
		"form": func(name string, otherwise ...string) string { // the text of a field in a form that is shown again
			if b.visit.problem != nil && b.visit.PostForm.Has(name) {
				return b.visit.PostForm.Get(name)
			}
			return strings.Join(otherwise, "")
		},
		"asset": func(name string) string { return b.visit.root() + "assets/" + b.visit.console.assets.names[name] },
		"list":  func(values ...any) []any { return values },
		"dict":  kit.Dict,
		"here":  func() string { return b.visit.here() },
	}
}

//go:embed texts/*.json
var textFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// assets are the files that pages refer to. Their names hold their sums, so that browsers may keep them permanently.
type assets struct {
	names  map[string]string // as served, by their own names
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
		name, extension := path.Base(file), path.Ext(file)
		served := strings.TrimSuffix(name, extension) + "-" + sum(raw) + extension
		a.names[name], a.files[served] = served, raw
	}
	return a, nil
}

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
		_, _ = v.w.Write(raw) // the browser may have disconnected
	}
}
