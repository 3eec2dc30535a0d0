package dispatcher

import (
	"slices"
	"time"
)

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
