package dispatcher

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

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
