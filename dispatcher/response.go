package dispatcher

// Response is the stored part of a target's response, and how long it took. An attempt that succeeded
// within a second, with no body and no request id, has none.
type Response struct {
	// RequestID is the id that the target gave the request.
	RequestID string `json:"request_id,omitempty"`
	// Headers are a selection of the response's headers.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is its beginning, at most 64 KiB; invalid UTF-8 is replaced.
	Body string `json:"body,omitempty"`
	// BodyTruncated tells that the body was longer.
	BodyTruncated bool `json:"body_truncated,omitempty"`
	// FunctionError is Handled or Unhandled, of a Lambda function that failed.
	FunctionError string `json:"function_error,omitempty"`
	// ExecutedVersion is the version of the function that an alias led to.
	ExecutedVersion string `json:"executed_version,omitempty"`
	// LogTail is the end of the function's log, with everything masked that looks like a secret.
	LogTail string `json:"log_tail,omitempty"`
	Phases  Phases `json:"phases,omitzero"`
}

// Phases are how long the parts of an attempt took. 0 means that the part did not happen, as on a
// kept connection, or did not end.
type Phases struct {
	DNS     Duration `json:"dns,omitempty"`
	Connect Duration `json:"connect,omitempty"`
	TLS     Duration `json:"tls,omitempty"`
	// FirstByte and LastByte of the response are measured from the start of the attempt.
	FirstByte Duration `json:"first_byte,omitempty"`
	LastByte  Duration `json:"last_byte,omitempty"`
}
