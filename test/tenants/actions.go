package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// action is an action that the owner of the hostile app repeats.
type action struct {
	name    string
	every   time.Duration // interval of one worker
	workers int
	do      func(h *hostile, ctx context.Context, random *rand.Rand, n int)
}

func actions() []action {
	return append(intrusions(), []action{
		{"declare jobs", 50 * time.Millisecond, 1, (*hostile).declareJob},
		{"declare calendars", 20 * time.Millisecond, 1, (*hostile).declareCalendar},
		{"preview calendars", 200 * time.Millisecond, 2, (*hostile).preview},
		{"nest JSON", 200 * time.Millisecond, 1, (*hostile).nest},
		{"list", 100 * time.Millisecond, 2, (*hostile).list},
		{"read runs", 100 * time.Millisecond, 1, (*hostile).readRuns},
		{"run manually", 10 * time.Millisecond, 2, (*hostile).runManually},
		{"use bad tokens", 5 * time.Millisecond, 2, (*hostile).useBadToken},
		{"use the other app", 50 * time.Millisecond, 1, (*hostile).useOtherApp},
		{"lift bounds", 500 * time.Millisecond, 1, (*hostile).liftBounds},
		{"hold connections", 2 * time.Millisecond, 1, (*hostile).holdConnection},
	}...)
}

func actionNames() []string {
	var names []string
	for _, a := range actions() {
		names = append(names, a.name)
	}
	return names
}

const hostilePath = "/v1/apps/" + hostileName

// declareJob declares one of two jobs of a kind: first each kind in turn, then at random.
func (h *hostile) declareJob(ctx context.Context, random *rand.Rand, n int) {
	kinds := h.jobs(random)
	names := sortedKeys(kinds)
	name := names[n%len(names)]
	if n >= 2*len(names) {
		name = names[random.IntN(len(names))]
	}
	status := h.put(ctx, random, "declare jobs", fmt.Sprintf("%s/jobs/%s", hostilePath, name), kinds[name])
	h.did("declare "+strings.TrimRight(name, "-0123456789"), strconv.Itoa(status))
}

// every returns triggers that fire each second.
func every(n int, more object) object {
	all := object{}
	for i := range n {
		trigger := object{"expression": "rate(1s)"}
		for key, value := range more {
			trigger[key] = value
		}
		all["t"+strconv.Itoa(i)] = trigger
	}
	return all
}

func webhook(url string, more object) object {
	hook := object{"url": url, "timeout": "2s"}
	for key, value := range more {
		hook[key] = value
	}
	return object{"webhook": hook}
}

func job(target object, triggers object) object {
	return object{"target": target, "triggers": triggers, "payload": object{"from": hostileName}, "retry": object{"max_attempts": 3}}
}

// jobs returns all jobs to declare, drawn again each time. Costly ones have names that come last.
func (h *hostile) jobs(random *rand.Rand) map[string]object {
	shared := strings.TrimPrefix(h.Shared, "http://")
	key := func(reference string) object {
		return object{"auth": object{"api_key": object{"header": "X-Key", "key": object{"reference": reference}}}}
	}
	signed := func(service string) object {
		return object{"auth": object{"sigv4": object{"service": service, "region": "eu-west-1"}}}
	}
	slowExpression := strings.Repeat("(?:a?){1000}", 83) + "b"
	all := map[string]object{
		"slow":            job(webhook(h.own+"/slow", object{"timeout": "15s"}), every(20, nil)),
		"accepted":        job(webhook(h.own+"/accept", object{"callback": object{"timeout": "1m"}}), every(5, nil)),
		"failing":         job(webhook(h.own+"/fail", nil), every(10, nil)),
		"redirected":      job(webhook(h.own+"/redirect", nil), every(1, nil)),
		"long-response":   job(webhook(h.own+"/long", nil), every(5, nil)),
		"shared-failing":  job(webhook(h.Shared+"/broken", nil), every(20, nil)),
		"shared-hanging":  job(webhook(h.Shared+"/hang", object{"timeout": "100ms"}), every(20, nil)),
		"shared-good":     job(webhook(h.Shared+"/good", object{"timeout": "100ms"}), every(5, nil)),
		"shared-tls":      job(webhook("https://"+shared+"/good", nil), every(10, nil)),
		"victim":          job(webhook(h.Victim+"/steady", nil), every(2, nil)),
		"very-slow-match": job(webhook(h.own+"/letters", object{"expect_body": slowExpression, "timeout": "1s"}), every(2, nil)),
		"wide-expression": job(webhook(h.own+"/ok", object{"expect_body": strings.Repeat("(", 400_000)}), every(1, nil)),
		"very-deep":       job(webhook(h.own+"/ok", nil), every(6, object{"calendar": "c8-0"})),
		"large":           job(webhook(h.own+"/ok", object{"body": strings.Repeat("x", 200_000)}), every(1, nil)),
		"unicode":         job(webhook("http://①②⑦.⓪.⓪.①/", nil), every(1, nil)),
		"sign-echoed":     job(webhook(h.own+"/echo", signed("sts")), every(1, nil)),
		"sign-other":      job(webhook(h.own+"/echo", signed("execute-api")), every(1, nil)),
		"secret-at-their": job(webhook(h.Victim+"/steady", key("env:SECRET_PAYROLL_KEY")), every(1, nil)),
		"role": job(object{"lambda": object{"function": "own-function",
			"assume_role": object{"role_arn": "arn:aws:iam::111111111111:role/" + appName, "external_id": "guessed"}}}, every(1, nil)),
	}
	for i, reference := range []string{
		"env:SECRET_PAYROLL_KEY", "file:payroll/key", "file:hostile/../payroll/key", "env:AWS_SECRET_ACCESS_KEY", "env:CARILLON_SECRET_KEYS",
		"env:SECRET_HOSTILE_KEY", "file:../node-0.log",
	} {
		all["secret-"+strconv.Itoa(i)] = job(webhook(h.own+"/echo", key(reference)), every(1, nil))
	}
	for i, url := range []string{
		"http://10.0.0.7/", "http://192.168.1.1/", "http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://0x7f000001/",
		"http://100.64.0.1:10250/",
	} {
		all["private-"+strconv.Itoa(i)] = job(webhook(url, object{"timeout": "200ms"}), every(1, nil))
	}
	for i, url := range ownTargets(h.Nodes) {
		all[ownJob(i)] = job(webhook(url, nil), every(1, nil))
	}
	for i, function := range []string{functionName, functionARN, functionARN + ":1", "111111111111:" + functionName} {
		all["function-"+strconv.Itoa(i)] = job(object{"lambda": object{"function": function}}, every(1, nil))
	}
	// Unexpected combinations: fields of one job in another.
	a, b := all["failing"], all["slow"]
	expression := expressions()[random.IntN(len(expressions()))]
	all["crossed"] = object{"target": a["target"], "triggers": object{"t": object{"expression": expression}},
		"payload": b, "priority": random.IntN(2000) - 1000, "max_concurrency": random.IntN(100), "concurrency_policy": "queue"}
	return all
}

func expressions() []string {
	return []string{
		"* * * * * ?", "rate(1ms)", "rate(1s)", "H/1 * * * *", "0 0 30 2 ?", "0 0 0 29 2 ? 2099", "@every 1s", "*/1 * * * * * *",
		"at(2027-01-01T00:00:00)",
		strings.Repeat("0,", 5000) + "1 * * * * ?", "\u0000", "🕑 * * * *",
	}
}

// ownTargets are the nodes themselves, as targets.
func ownTargets(nodes []string) (urls []string) {
	for _, listen := range nodes {
		_, port, _ := strings.Cut(listen, ":")
		for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"} {
			urls = append(urls, "http://"+host+":"+port+"/livez")
		}
	}
	return urls
}

func ownJob(i int) string { return "own-" + strconv.Itoa(i) }

// declareCalendar declares calendars that each have all calendars of the level below as bases.
func (h *hostile) declareCalendar(ctx context.Context, random *rand.Rand, n int) {
	const levels, width = 9, 10
	n %= levels * width
	definition := object{"rules": []object{{"weekdays": []string{"SUN"}}}}
	if level := n / width; level > 0 {
		var bases []string
		for i := range width {
			bases = append(bases, fmt.Sprintf("c%d-%d", level-1, i))
		}
		definition = object{"bases": bases}
	}
	h.put(ctx, random, "declare calendars", fmt.Sprintf("%s/calendars/c%d-%d", hostilePath, n/width, n%width), definition)
}

// preview requests fires with these calendars, each time with a deeper one.
func (h *hostile) preview(ctx context.Context, random *rand.Rand, n int) {
	body := fmt.Sprintf(`{"expression":"rate(5m)","app":%q,"calendar":"c%d-0","count":%d}`, hostileName, n%9, 1+random.IntN(100))
	h.ask(ctx, random, "preview calendars", "POST", "/v1/schedules/preview", body)
}

// nest sends objects with duplicate keys deep inside, and invalid bodies.
func (h *hostile) nest(ctx context.Context, random *rand.Rand, n int) {
	body := strings.Repeat(`{"a":`, 995) + "{" + strings.Repeat(`"k":1,`, 110) + `"k":1}` + strings.Repeat("}", 995)
	switch n % 4 {
	case 1:
		body = strings.Repeat("[", 100_000)
	case 2:
		body = `{"expression":"` + strings.Repeat(`\ud800`, 10_000) + `"}`
	case 3:
		body = body[:random.IntN(len(body))]
	}
	h.ask(ctx, random, "nest JSON", "POST", "/v1/schedules/preview", body)
}

func (h *hostile) list(ctx context.Context, random *rand.Rand, n int) {
	paths := []string{
		hostilePath + "/jobs?limit=1000", hostilePath + "/runs?limit=1000", hostilePath + "/verify", hostilePath + "/misfires?limit=1000",
		hostilePath + "/calendars?limit=1000", hostilePath + "/export", hostilePath + "/timeline", hostilePath + "/backfills",
		hostilePath + "/bulk", hostilePath + "/objectives", "/v1/upcoming?app=" + hostileName, "/v1/attention?app=" + hostileName,
		"/v1/statistics?app=" + hostileName,
	}
	h.ask(ctx, random, "list", "GET", paths[n%len(paths)], "")
}

// readRuns reads the responses of targets.
func (h *hostile) readRuns(ctx context.Context, random *rand.Rand, _ int) {
	names := sortedKeys(h.jobs(random))
	_, text := h.ask(ctx, random, "read runs", "GET", hostilePath+"/runs?limit=5&job="+names[random.IntN(len(names))], "")
	var page struct{ Items []struct{ ID string } }
	_ = json.Unmarshal([]byte(text), &page) // an error leaves nothing to read
	for _, run := range page.Items {
		h.ask(ctx, random, "read runs", "GET", "/v1/runs/"+run.ID, "")
	}
}

func (h *hostile) runManually(ctx context.Context, random *rand.Rand, _ int) {
	names := sortedKeys(h.jobs(random))
	h.ask(ctx, random, "run manually", "POST", hostilePath+"/jobs/"+names[random.IntN(len(names))]+"/run", "")
}

func (h *hostile) useBadToken(ctx context.Context, random *rand.Rand, _ int) {
	header := fmt.Sprintf("Authorization: Bearer carillon_%043d", random.Uint64())
	status, _ := h.ask(ctx, random, "use bad tokens", "GET", "/v1/apps", "", header)
	if status == http.StatusOK {
		h.leak("guessed a token")
	}
}

// useOtherApp tries the routes of the other app.
func (h *hostile) useOtherApp(ctx context.Context, random *rand.Rand, n int) {
	app := "/v1/apps/" + appName
	requests := []struct{ method, path, body string }{
		{"GET", app, ""},
		{"PUT", app, `{}`},
		{"PATCH", app, `{"enabled":false}`},
		{"DELETE", app, ""},
		{"GET", app + "/jobs", ""},
		{"GET", app + "/jobs/lambda", ""},
		{"PUT", app + "/jobs/lambda", `{"target":{"webhook":{"url":"` + h.own + `"}},"triggers":{}}`},
		{"DELETE", app + "/jobs/lambda", ""},
		{"POST", app + "/jobs/lambda/run", ""},
		{"POST", app + "/jobs/steady-0/pause", ""},
		{"GET", app + "/runs", ""},
		{"GET", app + "/export", ""},
		{"GET", "/v1/apps/payroll%2f..%2f" + appName + "/jobs", ""},
		{"POST", "/v1/schedules/preview", `{"expression":"rate(5m)","app":"` + appName + `","calendar":"c"}`},
		{"GET", "/metrics", ""},
		{"GET", "/v1/nodes", ""},
		{"GET", "/v1/tokens", ""},
		{"GET", "/v1/audit?app=" + appName, ""},
		{"PUT", "/v1/tokens/mine", `{"scopes":["admin"]}`},
	}
	for _, run := range h.Runs {
		requests = append(requests, struct{ method, path, body string }{"GET", "/v1/runs/" + run, ""},
			struct{ method, path, body string }{"POST", "/v1/runs/" + run + "/cancel", ""},
			struct{ method, path, body string }{"POST", "/v1/runs/" + run + "/retry", ""})
	}
	q := requests[n%len(requests)]
	status, text := h.ask(ctx, random, "use the other app", q.method, q.path, q.body, "If-Match: *")
	if status >= 200 && status < 300 && !strings.HasPrefix(q.path, "/v1/audit") || strings.Contains(text, "steady-0") {
		h.leak("did %s %s, with status %d", q.method, q.path, status)
	}
}

// liftBounds tries changes that only operators may make.
func (h *hostile) liftBounds(ctx context.Context, random *rand.Rand, n int) {
	bodies := []string{
		`{"bounds":{"weight":100}}`, `{"bounds":{"secrets":["env:SECRET_*"]}}`, `{"bounds":{"lambda":{"functions":["*"],"roles":["*"]}}}`,
		`{"bounds":{"sign_as_node":[{"service":"sts","hosts":["127.0.0.1"]}]}}`, `{"retention":"87600h"}`,
		`{"bounds":{"quotas":{"jobs":1000000}}}`,
	}
	body := bodies[n%len(bodies)]
	status, _ := h.ask(ctx, random, "lift bounds", "PUT", hostilePath, body, "If-Match: *")
	if status >= 200 && status < 300 {
		h.leak("set its own bounds: %s", body)
	}
}

// mostIdle is more connections than the nodes can open files.
const mostIdle = 2 * nodeCount * nodeFiles

// holdConnection opens a connection, sends a partial request or one complete request, and keeps it open.
func (h *hostile) holdConnection(ctx context.Context, random *rand.Rand, n int) {
	h.mu.Lock()
	full := h.idle >= mostIdle
	h.mu.Unlock()
	if full {
		return
	}
	conn, err := h.dial(ctx, "tcp", h.Nodes[random.IntN(len(h.Nodes))])
	if err != nil {
		h.did("hold connections", "refused")
		return
	}
	h.did("hold connections", "opened")
	text := "GET /livez HTTP/1.1\r\nHost: node\r\n"
	if n%2 == 0 {
		text += "\r\n"
	}
	_, _ = conn.Write([]byte(text)) // a node may close it at once
	h.mu.Lock()
	h.idle++
	h.report.Held = max(h.report.Held, h.idle)
	h.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	go func() {
		defer stop()
		buffer := make([]byte, 4096)
		for {
			if _, err := conn.Read(buffer); err != nil {
				break
			}
		}
		_ = conn.Close()
		h.mu.Lock()
		h.idle--
		h.mu.Unlock()
	}()
}
