package tfconfig

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// A tree is the JSON of an object: maps, lists, texts, truth values and json.Number. Files and server are compared as
// trees, and files are written from them.

// parse returns the tree of a JSON text.
func parse(text []byte) (tree any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&tree)
	return tree, err
}

// treeOf returns the tree of an object.
func treeOf(object any) (map[string]any, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	tree, err := parse(text)
	all, _ := tree.(map[string]any)
	return all, err
}

// flattenDefaults gives the defaults of an app their names in files.
func flattenDefaults(tree map[string]any) map[string]any {
	defaults, _ := tree["defaults"].(map[string]any)
	for name, value := range defaults {
		tree[appDefaults+name] = value
	}
	return tree
}

// resolve fills in what the API recognises in an expression, so that two notations of a trigger compare as equal.
func resolve(t *dispatcher.Trigger, identity string) {
	parsed, err := t.Parse(identity, time.Time{}, nil)
	if err != nil {
		return // the API refuses it, and lint reports it
	}
	spec := parsed.Spec()
	t.Dialect, t.Timezone, t.Gap, t.Overlap = spec.Dialect, spec.Timezone, spec.Gap, spec.Overlap
	for _, at := range []*time.Time{t.StartAt, t.EndAt} {
		if at != nil {
			*at = at.UTC()
		}
	}
}

// jobTree returns the tree of a job from the server without values that the API recognises in the expressions by
// itself, and without the defaults of its app. The time zone stays, because a wall clock needs one.
func jobTree(job dispatcher.Job, defaults *dispatcher.JobDefaults) (map[string]any, error) {
	tree, err := treeOf(job)
	if err != nil {
		return nil, err
	}
	triggers, _ := tree["triggers"].(map[string]any)
	for name, t := range job.Triggers {
		one, _ := triggers[name].(map[string]any)
		identity := job.Identity(name)
		shortest := t
		without := func(key string, change func(*dispatcher.Trigger)) {
			shorter := shortest
			change(&shorter)
			again := shorter
			if resolve(&again, identity); again.Schedule == t.Schedule {
				shortest = shorter
				delete(one, key)
			}
		}
		without("dialect", func(t *dispatcher.Trigger) { t.Dialect = "" })
		without("gap", func(t *dispatcher.Trigger) { t.Gap = "" })
		without("overlap", func(t *dispatcher.Trigger) { t.Overlap = "" })
		if t.Dialect == schedule.DialectInterval {
			without("timezone", func(t *dispatcher.Trigger) { t.Timezone = "" })
		}
	}
	return tree, jobWithoutDefaults(tree, defaults)
}

// appWithoutDefaults removes default values from the tree of an app.
func appWithoutDefaults(tree map[string]any) map[string]any {
	tree = flattenDefaults(tree)
	remove(tree, standard[access.App]())
	retryWithoutDefaults(tree[appDefaults+"retry"])
	return tree
}

// calendarWithoutDefaults removes default values from the tree of a calendar.
func calendarWithoutDefaults(tree map[string]any) map[string]any {
	remove(tree, dispatcher.Calendar{})
	rules, _ := tree["rules"].([]any)
	for _, rule := range rules {
		remove(rule, schedule.CalendarRule{})
	}
	return tree
}

// groupWithoutDefaults removes default values from the tree of an endpoint group.
func groupWithoutDefaults(tree map[string]any) map[string]any {
	group := standard[target.EndpointGroup]()
	remove(tree, group)
	remove(tree["probe"], group.Probe)
	remove(tree["registration"], standard[target.Registration]())
	endpoints, _ := tree["endpoints"].(map[string]any)
	for _, endpoint := range endpoints {
		remove(endpoint, target.StaticEndpoint{}.Resolved())
	}
	names, _ := tree["dns"].(map[string]any)
	for _, name := range names {
		remove(name, target.DNSMembers{}.Resolved())
	}
	remove(tree["health_check"], standard[target.HealthCheck]())
	return tree
}

// alertWithoutDefaults removes default values from the tree of an alert.
func alertWithoutDefaults(tree map[string]any) (map[string]any, error) {
	retry, err := treeOf(standard[alert.Alert]().Retry)
	if err != nil {
		return nil, err
	}
	if reflect.DeepEqual(tree["retry"], any(retry)) {
		delete(tree, "retry")
	}
	retryWithoutDefaults(tree["retry"])
	destination, failure := tree["destination"], tree["failure"]
	remove(tree, alert.Alert{Spec: alert.Spec{Recovery: true}})
	if failure != nil { // an empty one stands for the first failure
		remove(failure, standard[alert.Failures]())
		tree["failure"] = failure
	}
	all, _ := destination.(map[string]any)
	remove(all["webhook"], standard[target.AlertWebhook]())
	remove(all["sns"], standard[target.AlertTopic]())
	return tree, nil
}

// jobWithoutDefaults removes values from the tree of a job that are defaults of its app or of Carillon.
func jobWithoutDefaults(tree map[string]any, defaults *dispatcher.JobDefaults) error {
	job, trigger := standard[dispatcher.Job](), standard[dispatcher.Trigger]()
	job.LeaveToApp()
	trigger.LeaveToApp()
	job.Triggers = map[string]dispatcher.Trigger{"any": trigger}
	defaults.Fill(&job)
	retry, err := treeOf(job.Retry)
	if err != nil {
		return err
	}
	target, triggers := tree["target"], tree["triggers"]
	if reflect.DeepEqual(tree["retry"], any(retry)) {
		delete(tree, "retry")
	}
	retryWithoutDefaults(tree["retry"])
	all, _ := triggers.(map[string]any)
	for _, one := range all {
		remove(one, job.Triggers["any"])
	}
	job.Triggers = nil
	remove(tree, job)
	tree["target"], tree["triggers"] = targetWithoutDefaults(target, defaults), triggers
	for _, event := range run.FollowEvents {
		remove(tree[string(event)], dispatcher.Follow{Payload: dispatcher.FollowOwn})
	}
	return nil
}

// retryWithoutDefaults removes default values from a given policy. It keeps the number of attempts.
func retryWithoutDefaults(tree any) {
	all, ok := tree.(map[string]any)
	if !ok {
		return
	}
	attempts := all["max_attempts"]
	remove(all, standard[run.Retry]())
	all["max_attempts"] = attempts
}

// targetWithoutDefaults removes values from the tree of a target that are defaults of its app or of Carillon.
func targetWithoutDefaults(to any, defaults *dispatcher.JobDefaults) any {
	all, _ := to.(map[string]any)
	for _, kind := range []target.Kind{target.KindWebhook, target.KindGroup} {
		request, _ := all[string(kind)].(map[string]any)
		if headers, is := request["headers"].(map[string]any); is && defaults != nil {
			maps.DeleteFunc(headers, func(name string, value any) bool {
				return slices.ContainsFunc(slices.Collect(maps.Keys(defaults.Headers)), func(given string) bool {
					return strings.EqualFold(given, name) && value == defaults.Headers[given]
				})
			})
		}
	}
	remove(all["webhook"], standard[target.Webhook]())
	remove(all["lambda"], standard[target.Lambda]())
	remove(all["group"], standard[target.GroupTarget]())
	remove(all["sqs"], standard[target.SQS]())
	remove(all["sns"], standard[target.SNS]())
	return to
}

// standard returns a value with only its defaults.
func standard[T any, P interface {
	*T
	SetDefaults()
}]() (one T) {
	P(&one).SetDefaults()
	return one
}

// remove deletes from a tree the values that equal those of defaults, and empty ones.
func remove(tree, defaults any) {
	all, ok := tree.(map[string]any)
	other, err := treeOf(defaults)
	if !ok || err != nil {
		return
	}
	for name, value := range all {
		if standard, is := other[name]; empty(value) && (!is || empty(standard)) || is && reflect.DeepEqual(value, standard) {
			delete(all, name)
		}
	}
}

// empty reports whether a value is the same as none.
func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == "" || value == input.Duration(0).String()
	case bool:
		return !value
	case json.Number:
		return value == "0"
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}

// node is a part of a resource: the value of an attribute, a block, or a list or map of either. Parts have their
// names in the API, so that its JSON pointers lead to nodes.
type node struct {
	at hcl.Range
	// name is its name in the file: the name of an attribute or block, a key or an index.
	name string
	kind string // the type of a block or resource
	// unknown is true if the value is unknown here, or wrong and already reported.
	unknown bool
	value   any              // of a scalar: string, bool, int64, or JSON as json.RawMessage
	parts   map[string]*node // of a block or map; nil for others
	list    []*node          // of a list; its parts are nil
	isList  bool
}

// json returns the value without unknown parts.
func (n *node) json() any {
	switch {
	case n.parts != nil:
		all := map[string]any{}
		for name, part := range n.parts {
			if !part.unknown {
				all[name] = part.json()
			}
		}
		return all
	case n.isList:
		all := []any{}
		for _, part := range n.list {
			if !part.unknown {
				all = append(all, part.json())
			}
		}
		return all
	}
	return n.value
}

// part returns a part of a block, or nil; n may be nil.
func (n *node) part(name string) *node {
	if n == nil {
		return nil
	}
	return n.parts[name]
}

// all returns the parts of a block or map; n may be nil.
func (n *node) all() map[string]*node {
	if n == nil {
		return nil
	}
	return n.parts
}

// text returns the value of a text; ok is false if it is missing or unknown.
func (n *node) text() (text string, ok bool) {
	if n == nil || n.unknown {
		return "", false
	}
	text, ok = n.value.(string)
	return text, ok
}

// isUnknown reports whether a part is unknown; n may be nil.
func (n *node) isUnknown() bool { return n != nil && n.unknown }

// allKnown reports whether all of n is known; n may be nil.
func (n *node) allKnown() bool {
	if n == nil {
		return true
	}
	for _, part := range n.parts {
		if !part.allKnown() {
			return false
		}
	}
	for _, part := range n.list {
		if !part.allKnown() {
			return false
		}
	}
	return !n.unknown
}

// follow returns the existing nodes on the way of a JSON pointer, beginning with n.
func (n *node) follow(pointer string) []*node {
	way := []*node{n}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = unescape.Replace(token)
		var next *node
		if index, err := strconv.Atoi(token); n.isList && err == nil && index >= 0 && index < len(n.list) {
			next = n.list[index]
		} else if !n.isList {
			next = n.parts[token]
		}
		if next == nil {
			return way
		}
		way, n = append(way, next), next
	}
	return way
}
