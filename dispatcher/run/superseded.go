package run

import "strings"

// HeaderOutcome is the header in which a receiver says more about how a request ended than its status does. Its only value
// is OutcomeSuperseded.
const HeaderOutcome = "Carillon-Outcome"

// OutcomeSuperseded refuses a request as stale: the receiver has done a newer fire of the trigger, or a newer attempt of the
// run. It is the value of HeaderOutcome, or of the member outcome in a body {"carillon": {"outcome": …}}.
const OutcomeSuperseded = "superseded"

// OutcomeInBody returns the outcome in the body of a response; empty: it says none.
func OutcomeInBody(body []byte) string { return envelopeIn(body).Carillon.Outcome }

// IsSuperseded reports whether a receiver's word for an outcome refuses a request as stale.
func IsSuperseded(outcome string) bool {
	return strings.EqualFold(strings.TrimSpace(outcome), OutcomeSuperseded)
}

// SupersededOutcome is the outcome of an attempt that a receiver refused as stale. It has no class, because it is no failure.
func SupersededOutcome() Outcome {
	return Outcome{
		State: Superseded,
		Error: "the target refused the request as stale: a newer fire of the trigger, or a newer attempt of the run, had been done",
	}
}

// MayBeSuperseded reports whether a target may refuse runs of a kind as stale. It may not refuse what tells people or other
// systems about a run or an alert: that would be lost without a failure.
func (k Kind) MayBeSuperseded() bool { return k != KindAlert && k != KindFollow }
