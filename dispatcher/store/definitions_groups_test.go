package store_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// secretGroup is a group with a signing secret and a token.
func secretGroup(signing, token target.Secret) target.EndpointGroup {
	return target.EndpointGroup{
		App: "demo", Name: "ping",
		EndpointGroupSpec: target.EndpointGroupSpec{
			Auth:      &target.Auth{Bearer: &target.BearerAuth{Token: token}},
			Signing:   &target.Signing{Secrets: map[string]target.Secret{"current": signing}},
			Endpoints: map[string]target.StaticEndpoint{"a": {URL: "https://a.example.com"}, "b": {URL: "https://b.example.com"}},
			Registration: &target.Registration{
				Networks: []string{"10.0.0.0/8", "fd12::/16"}, Ports: []int{80, 8080}},
		},
	}
}

const (
	groupToken   = "/auth/bearer/token"
	groupSigning = "/signing/secrets/current"
)

// putGroup creates the app as well.
func putGroup(t *testing.T, s *store.Store, g target.EndpointGroup) (target.EndpointGroup, error) {
	t.Helper()
	if _, _, err := s.PutApp(t.Context(), access.App{Name: "demo", AppSpec: access.AppSpec{Enabled: true}}, input.Change{}); err != nil {
		t.Fatal(err)
	}
	stored, _, err := s.PutGroup(t.Context(), g, input.Change{})
	return stored, err
}

// openedOfGroup returns the values of a group's secrets as a node gets them.
func openedOfGroup(t *testing.T, s *store.Store) map[string]string {
	t.Helper()
	version, err := s.GroupVersion(t.Context(), "demo", "ping", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for path, secret := range target.Secrets(version) {
		values[path] = secret.Value.Reveal()
	}
	return values
}

func TestOnlyNodesGetSecretsOfGroups(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := openWith(t, database, sealKeys(t, "a"))
		kept := target.Secret{Stored: true}
		stored, err := putGroup(t, s, secretGroup(value(first), value("hunter2")))
		must(t, err)
		read, err := s.Group(t.Context(), "demo", "ping")
		must(t, err)
		list, err := s.Groups(t.Context(), "demo", input.Page{Limit: 1})
		must(t, err)
		for what, group := range map[string]target.EndpointGroup{"put": stored, "read": read, "listed": list[0]} {
			if diff := cmp.Diff(map[string]target.Secret{groupToken: kept, groupSigning: kept}, target.Secrets(group)); diff != "" {
				t.Errorf("secrets as %s (-want +got):\n%s", what, diff)
			}
		}
		for _, step := range []struct {
			what           string
			signing, token target.Secret
			want           map[string]string
			revision       int64
		}{
			{"as they were given", kept, kept, map[string]string{groupSigning: first, groupToken: "hunter2"}, 1},
			{"given as before", value(first), kept, map[string]string{groupSigning: first, groupToken: "hunter2"}, 2},
			{"one replaced", kept, value("hunter3"), map[string]string{groupSigning: first, groupToken: "hunter3"}, 3},
			{"one by reference", value(other), target.Secret{Reference: "env:SECRET_DEMO_X"},
				map[string]string{groupSigning: other, groupToken: ""}, 4},
		} {
			stored, err := putGroup(t, s, secretGroup(step.signing, step.token))
			must(t, err)
			if diff := cmp.Diff(step.want, openedOfGroup(t, s)); diff != "" || stored.Revision != step.revision {
				t.Errorf("%s: revision %d, want %d; values (-want +got):\n%s", step.what, stored.Revision, step.revision, diff)
			}
		}
		if _, err := putGroup(t, s, secretGroup(kept, kept)); problemOf(err) != groupToken+"/stored secret_missing" {
			t.Errorf("to keep what is not there = %v", err)
		}
		page, err := s.AuditEntries(t.Context(), access.AuditQuery{Subject: "group ping", Page: input.Page{Limit: 10}})
		must(t, err)
		hashes := map[bool]int{}
		for _, e := range page.Entries {
			text := string(e.Before) + string(e.After)
			hashes[strings.Contains(text, "hash:")]++
			if strings.Contains(text, "hunter") || strings.Contains(text, "whsec") {
				t.Errorf("a secret is in the audit log: %s", text)
			}
		}
		if diff := cmp.Diff(map[bool]int{true: 4}, hashes); diff != "" {
			t.Errorf("entries with hashes of secrets (-want +got):\n%s", diff)
		}
		// A job of the same name has its own secrets.
		put(t, s, secretJob(value(first), value("hunter9")))
		must(t, s.DeleteGroup(t.Context(), "demo", "ping", input.Change{}))
		if got := opened(t, s)[tokenPath]; got != "hunter9" {
			t.Errorf("secret of the job = %q, want hunter9", got)
		}
		if _, err := putGroup(t, s, secretGroup(kept, value("x"))); problemOf(err) != groupSigning+"/stored secret_missing" {
			t.Errorf("to keep what was deleted = %v", err)
		}
	})
}

// A change of a group cannot send its secrets further than they could go when they were set.
func TestSecretsOfGroupsAreNotSentFurther(t *testing.T) {
	t.Parallel()
	s := openWith(t, sqlitetest.New(t), sealKeys(t, "a"))
	_, err := putGroup(t, s, secretGroup(value(first), value("hunter2")))
	must(t, err)
	kept := target.Secret{Stored: true}
	for what, wider := range map[string]func(*target.EndpointGroup){
		"another host": func(g *target.EndpointGroup) {
			g.Endpoints["c"] = target.StaticEndpoint{URL: "https://evil.test"}
		},
		"another port": func(g *target.EndpointGroup) {
			g.Endpoints["a"] = target.StaticEndpoint{URL: "https://a.example.com:8443"}
		},
		"plain text": func(g *target.EndpointGroup) {
			g.Endpoints["a"] = target.StaticEndpoint{URL: "http://a.example.com"}
		},
		"a wider network": func(g *target.EndpointGroup) { g.Registration.Networks = []string{"10.0.0.0/7"} },
		"a new network": func(g *target.EndpointGroup) {
			g.Registration.Networks = append(g.Registration.Networks, "11.0.0.0/32")
		},
		"all of IPv6":   func(g *target.EndpointGroup) { g.Registration.Networks = []string{"::/0"} },
		"a new port":    func(g *target.EndpointGroup) { g.Registration.Ports = append(g.Registration.Ports, 22) },
		"a server name": func(g *target.EndpointGroup) { g.ServerName = "evil.test" },
		"a name of DNS": func(g *target.EndpointGroup) {
			g.DNS = map[string]target.DNSMembers{"evil": {Hostname: "evil.test", Port: 443, Scheme: "https"}}
		},
	} {
		g := secretGroup(kept, target.Secret{Reference: "env:SECRET_DEMO_X"})
		wider(&g)
		if _, err := putGroup(t, s, g); problemOf(err) != groupSigning+"/stored secret_origin" {
			t.Errorf("%s = %v, want secret_origin", what, err)
		}
		g = secretGroup(value(first), value("hunter2"))
		wider(&g)
		if err := target.EndpointGroup.CheckKept(g, secretGroup(kept, kept)); err != nil {
			t.Errorf("%s with the values given again = %v", what, err)
		}
	}
	narrow := secretGroup(kept, kept)
	narrow.Registration = &target.Registration{Networks: []string{"10.1.0.0/16", "10.2.3.4/32"}, Ports: []int{80}}
	narrow.Endpoints = map[string]target.StaticEndpoint{"other": {URL: "https://b.example.com/base", Weight: 3}}
	_, err = putGroup(t, s, narrow)
	must(t, err)
	if diff := cmp.Diff(map[string]string{groupSigning: first, groupToken: "hunter2"}, openedOfGroup(t, s)); diff != "" {
		t.Errorf("values of a narrower group (-want +got):\n%s", diff)
	}
	if _, err := putGroup(t, s, secretGroup(kept, value("x"))); problemOf(err) != groupSigning+"/stored secret_origin" {
		t.Errorf("back to the wider group = %v, want secret_origin", err)
	}
}

func TestClientSecretsOfGroupsStayWithTheirTokenEndpoint(t *testing.T) {
	t.Parallel()
	s := openWith(t, sqlitetest.New(t), sealKeys(t, "a"))
	kept := target.Secret{Stored: true}
	with := func(tokenURL string, signing, secret target.Secret) target.EndpointGroup {
		g := secretGroup(signing, secret)
		g.Auth = &target.Auth{OAuth2: &target.OAuth2Auth{TokenURL: tokenURL, ClientID: "a", ClientSecret: &secret}}
		return g
	}
	const login = "https://login.example.com/token"
	_, err := putGroup(t, s, with(login, value(first), value("hunter2")))
	must(t, err)
	_, err = putGroup(t, s, with("https://evil.test/token", kept, kept))
	if problemOf(err) != "/auth/oauth2/client_secret/stored secret_origin" ||
		!strings.Contains(err.Error(), "token endpoint \"https://evil.test\"") {
		t.Errorf("tokens from elsewhere = %v, want secret_origin of the client secret alone", err)
	}
	_, err = putGroup(t, s, with(login+"/v2", kept, kept))
	must(t, err)
	_, err = putGroup(t, s, with("https://evil.test/token", kept, value("hunter3")))
	must(t, err)
	if got := openedOfGroup(t, s)["/auth/oauth2/client_secret"]; got != "hunter3" {
		t.Errorf("client secret = %q, want hunter3", got)
	}
}

// With write access to the database alone, a secret cannot be opened for another group or in place of a newer one.
func TestSecretsOfGroupsDoNotOpenForOthers(t *testing.T) {
	t.Parallel()
	database := sqlitetest.New(t)
	s := openWith(t, database, sealKeys(t, "a"))
	_, err := putGroup(t, s, secretGroup(value(first), value("hunter2")))
	must(t, err)
	another := secretGroup(value(other), value("hunter3"))
	another.Name = "other"
	_, err = putGroup(t, s, another)
	must(t, err)
	db, err := sql.Open("sqlite", strings.TrimPrefix(database, "sqlite:")+"?_pragma=busy_timeout(5000)")
	must(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), `CREATE TABLE copied AS SELECT * FROM secrets`)
	must(t, err)
	const move = `INSERT OR REPLACE INTO secrets SELECT $1, path, key_id, data_key, ciphertext FROM copied WHERE owner_id = $2`
	_, err = db.ExecContext(t.Context(), move, run.GroupID("demo", "ping"), run.GroupID("demo", "other"))
	must(t, err)
	if diff := cmp.Diff(map[string]string{groupSigning: "", groupToken: ""}, openedOfGroup(t, s)); diff != "" {
		t.Errorf("with the rows of another group (-want +got):\n%s", diff)
	}
	_, err = putGroup(t, s, secretGroup(value(first), value("hunter4")))
	must(t, err)
	_, err = db.ExecContext(t.Context(), move, run.GroupID("demo", "ping"), run.GroupID("demo", "ping"))
	must(t, err)
	if diff := cmp.Diff(map[string]string{groupSigning: "", groupToken: ""}, openedOfGroup(t, s)); diff != "" {
		t.Errorf("with the rows from before (-want +got):\n%s", diff)
	}
}

func TestSecretsOfGroupsAreRewrapped(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		before := openWith(t, database, sealKeys(t, "a"))
		_, err := putGroup(t, before, secretGroup(value(first), value("hunter2")))
		must(t, err)
		put(t, before, secretJob(value(first), value("hunter3")))
		must(t, before.Close())
		both := openWith(t, database, sealKeys(t, "ba"))
		if count, err := both.RewrapSecrets(t.Context(), input.Change{}); err != nil || count != 4 {
			t.Fatalf("rewrapped %d, %v, want the two of the job and the two of the group", count, err)
		}
		must(t, both.Close())
		after := openWith(t, database, sealKeys(t, "b"))
		if diff := cmp.Diff(map[string]string{groupSigning: first, groupToken: "hunter2"}, openedOfGroup(t, after)); diff != "" {
			t.Errorf("values of the group (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{signingPath: first, tokenPath: "hunter3"}, opened(t, after)); diff != "" {
			t.Errorf("values of the job (-want +got):\n%s", diff)
		}
	})
}

func TestGroupsMoveWithTheirApp(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		group := target.EndpointGroup{
			App: "app", Name: "workers", EndpointGroupSpec: target.EndpointGroupSpec{Description: "fleet",
				Endpoints:    map[string]target.StaticEndpoint{"a": {URL: "https://a.example.com"}},
				Registration: &target.Registration{Networks: []string{"10.0.0.0/8"}, Ports: []int{80}}},
		}
		was, _, err := m.old.PutGroup(t.Context(), group, m.at(-time.Hour))
		must(t, err)
		e := target.Endpoint{ID: "b", StaticEndpoint: target.StaticEndpoint{URL: "http://10.0.0.1"}}
		_, _, err = m.old.RegisterEndpoint(t.Context(), "app", "workers", e, m.at(0))
		must(t, err)
		m.declare("tick", func(job *dispatcher.Job, _ *dispatcher.Trigger) {
			job.Target = target.Target{Group: &target.GroupTarget{Name: "workers", Method: "POST", Timeout: target.DefaultTimeout}}
		})
		m.move()
		is, err := m.new.Group(t.Context(), "app", "workers")
		must(t, err)
		if !is.Declares(was) {
			t.Errorf("the group moved as %+v, want %+v", is, was)
		}
		version, err := m.new.GroupVersion(t.Context(), "app", "workers", m.now)
		must(t, err)
		if len(version.Live) != 1 || version.Live[0].ID != "a" {
			t.Errorf("endpoints after the move = %+v, want a, which is declared", version.Live)
		}
		if job, err := m.new.Job(t.Context(), "app", "tick"); err != nil || job.Target.GroupName() != "workers" {
			t.Errorf("the job moved as %+v, %v", job.Target, err)
		}
	})
}

func TestImportNeedsTheGroupsOfItsJobs(t *testing.T) {
	t.Parallel()
	m := moving{t: t, old: open(t, sqlitetest.New(t)), new: open(t, sqlitetest.New(t)), now: time.Now().UTC().Truncate(time.Second)}
	_, _, err := m.old.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, m.at(-time.Hour))
	must(t, err)
	_, _, err = m.old.PutGroup(t.Context(), target.EndpointGroup{App: "app", Name: "workers"}, m.at(-time.Hour))
	must(t, err)
	m.declare("tick", func(job *dispatcher.Job, _ *dispatcher.Trigger) {
		job.Target = target.Target{Group: &target.GroupTarget{Name: "workers", Method: "POST", Timeout: target.DefaultTimeout}}
	})
	m.disable()
	export, err := m.old.ExportApp(t.Context(), "app")
	must(t, err)
	export.Groups = nil
	if _, err = m.new.ImportApp(t.Context(), export, m.at(0)); problemOf(err) != "/jobs/0/job/target/group/name group_unknown" {
		t.Errorf("import without the group = %v", err)
	}
}
