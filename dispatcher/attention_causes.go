package dispatcher

import (
	"slices"
	"time"
)

// CertificateEnd returns when the first certificate of the chain ends that t presents to a target; nil: it presents none.
func (t *TLS) CertificateEnd() *time.Time {
	if t == nil {
		return nil
	}
	chain, err := parseCertificates(t.ClientCertificate)
	if err != nil || len(chain) == 0 {
		return nil
	}
	first := chain[0].NotAfter.UTC()
	for _, one := range chain[1:] {
		if one.NotAfter.Before(first) {
			first = one.NotAfter.UTC()
		}
	}
	return &first
}

// CertificateEnd returns when the first client certificate of a job's own targets ends; nil: there is none.
func (j Job) CertificateEnd() *time.Time {
	ends := []*time.Time{j.Target.certificateEnd()}
	for _, follow := range j.EachFollow() {
		if follow.Target != nil {
			ends = append(ends, follow.Target.certificateEnd())
		}
	}
	ends = slices.DeleteFunc(ends, func(end *time.Time) bool { return end == nil })
	if len(ends) == 0 {
		return nil
	}
	return slices.MinFunc(ends, func(a, b *time.Time) int { return a.Compare(*b) })
}

func (t Target) certificateEnd() *time.Time {
	if t.Webhook == nil {
		return nil
	}
	return t.Webhook.TLS.CertificateEnd()
}
