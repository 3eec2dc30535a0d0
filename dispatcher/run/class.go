package run

// Repeatable reports whether another attempt may succeed. Of the statuses 4xx only those about timing
// are repeatable, because the others are about the request itself.
func (c Class) Repeatable(httpStatus int) bool {
	switch c {
	case ClassHTTP4xx:
		return httpStatus == 408 || httpStatus == 425
	case ClassRedirect, ClassConfig, ClassEgressDenied, ClassBounds, ClassCancelled, ClassPanic, ClassJobDeleted, ClassTemplate:
		return false
	}
	return true
}

// NeverSent reports whether an attempt failed before the first byte of its request, or before its
// target acted on it.
func (c Class) NeverSent() bool {
	switch c {
	case ClassDNS, ClassConnectRefused, ClassConnectTimeout, ClassSecret, ClassTemplate, ClassBounds, ClassCredentials,
		ClassOAuth2, ClassThrottled, ClassCircuitOpen, ClassHostRate, ClassNoEndpoint, ClassEndpointsBusy, ClassExecutorRefused:
		return true
	}
	return false
}

// OfHost reports whether the failure is one of the whole host and not of a single request.
func (c Class) OfHost() bool {
	switch c {
	case ClassDNS, ClassConnectRefused, ClassConnectTimeout, ClassTLS, ClassReset, ClassTimeout, ClassHTTP5xx, ClassProtocol,
		ClassNoEndpoint:
		return true
	}
	return false
}
