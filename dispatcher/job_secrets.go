package dispatcher

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// eachSecret returns a copy of j with each secret replaced; f takes its JSON pointer in j.
func (j Job) eachSecret(f func(path string, s target.Secret) target.Secret) Job {
	below := func(at string) func(string, target.Secret) target.Secret {
		return func(path string, s target.Secret) target.Secret { return f(at+path, s) }
	}
	j.Target = j.Target.EachSecret(below("/target"))
	return j.withFollows(func(event run.FollowEvent, follow Follow) Follow {
		if follow.Target != nil {
			follow.Target = new(follow.Target.EachSecret(below("/" + string(event) + "/target")))
		}
		return follow
	})
}

// Secrets returns the secrets of all targets of a job by their JSON pointers in it.
func (j Job) Secrets() map[string]target.Secret {
	all := map[string]target.Secret{}
	j.eachSecret(func(path string, s target.Secret) target.Secret {
		all[path] = s
		return s
	})
	return all
}

// WithSecrets returns a copy of j in which the secrets in with, by their JSON pointers, replace those of j.
func (j Job) WithSecrets(with map[string]target.Secret) Job {
	return j.eachSecret(func(path string, s target.Secret) target.Secret {
		if other, ok := with[path]; ok {
			return other
		}
		return s
	})
}

// CheckKept is Target.CheckKept for each target of a job. The pointers are those in j.
func (j Job) CheckKept(old Job) error {
	var problems input.Problems
	problems.AddError("/target", j.Target.CheckKept(old.Target))
	before := map[run.FollowEvent]*Follow{}
	for event, follow := range old.EachFollow() {
		before[event] = follow
	}
	for event, follow := range j.EachFollow() {
		if was := before[event]; follow.Target != nil && was != nil && was.Target != nil {
			problems.AddError("/"+string(event)+"/target", follow.Target.CheckKept(*was.Target))
		}
	}
	return problems.Err()
}

// ForWire returns a copy of j whose JSON holds the values of its secrets, only to send it to the API.
func (j Job) ForWire() Job {
	return j.eachSecret(func(_ string, s target.Secret) target.Secret {
		s.Value = s.Value.ForWire()
		return s
	})
}

// CertificateEnd returns when the first client certificate of a job's own targets ends; nil: there is none.
func (j Job) CertificateEnd() *time.Time {
	ends := []*time.Time{j.Target.CertificateEnd()}
	for _, follow := range j.EachFollow() {
		if follow.Target != nil {
			ends = append(ends, follow.Target.CertificateEnd())
		}
	}
	ends = slices.DeleteFunc(ends, func(end *time.Time) bool { return end == nil })
	if len(ends) == 0 {
		return nil
	}
	return slices.MinFunc(ends, func(a, b *time.Time) int { return a.Compare(*b) })
}
