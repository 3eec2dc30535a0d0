package dispatcher

// Response is what is kept of what a target answered, and how long it took. Nothing is kept of
// an attempt that succeeded within a second and was answered with no body and no request id.
type Response struct {
	// RequestID is what the target calls the request.
	RequestID string `json:"request_id,omitempty"`
	// Headers are a selection of those of the response.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is its beginning, of at most 64 KiB; what is not UTF-8 is replaced.
	Body string `json:"body,omitempty"`
	// BodyTruncated tells that the body went on.
	BodyTruncated bool `json:"body_truncated,omitempty"`
	// FunctionError is Handled or Unhandled, of a Lambda function that failed.
	FunctionError string `json:"function_error,omitempty"`
	// ExecutedVersion is the version of the function that an alias led to.
	ExecutedVersion string `json:"executed_version,omitempty"`
	// LogTail is the end of the function's log, without what looks like a secret.
	LogTail string `json:"log_tail,omitempty"`
	Phases  Phases `json:"phases,omitzero"`
}

// Phases are how long the parts of an attempt took; 0: there was no such part, as on a
// connection that was kept, or it did not end.
type Phases struct {
	DNS     Duration `json:"dns,omitempty"`
	Connect Duration `json:"connect,omitempty"`
	TLS     Duration `json:"tls,omitempty"`
	// FirstByte and LastByte are when these of the response came, counted from the attempt's start.
	FirstByte Duration `json:"first_byte,omitempty"`
	LastByte  Duration `json:"last_byte,omitempty"`
}
