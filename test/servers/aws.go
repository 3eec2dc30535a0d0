// Package servers has the servers that nodes call, for tests: AWS Secrets Manager, Parameter Store, KMS, STS, SQS and
// SNS, and HashiCorp Vault. They speak the real protocols, check signatures and tokens, and fail like the real ones.
package servers

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Credentials that AWS accepts from the node itself.
const (
	AccessKeyID     = "AKIAIOSFODNN7EXAMPLE"
	SecretAccessKey = "wJalrXUtnFEMI"
)

// Fault is a failure of a server. The zero value means no failure.
type Fault struct {
	Status int
	Code   string // of AWS, such as ThrottlingException
	Slow   bool   // the response never comes
	Body   string // sent unchanged, in place of an error of the service
	// Reset makes the service process the request, and break the connection in the middle of the response.
	Reset bool
	// Echo repeats the request's credentials wherever a response has room, with Status and Code; 0: as a success.
	Echo bool
}

// Session is an assumed role.
type Session struct {
	Role, Name, ExternalID string
	Tags                   map[string]string
}

// AWS serves all AWS services on one address.
type AWS struct {
	*httptest.Server
	tb testing.TB

	mu         sync.Mutex
	secrets    map[string]map[string]string // by name and staging label
	deleted    map[string]bool
	parameters map[string][]string // by name, oldest version first
	labels     map[string]int      // versions by NAME:LABEL
	sessions   map[string]Session  // by access key id
	faults     map[string]Fault    // by operation
	calls      map[string]int      // by operation and, for secrets, name
	allow      func(s Session, operation, name string) bool
	messages   map[string][]Message // by the ARN of their queue or topic
}

// NewAWS starts a server that ends with the test.
func NewAWS(tb testing.TB) *AWS {
	tb.Helper()
	a := &AWS{
		tb: tb, secrets: map[string]map[string]string{}, deleted: map[string]bool{}, parameters: map[string][]string{},
		messages: map[string][]Message{}, labels: map[string]int{},
		sessions: map[string]Session{}, faults: map[string]Fault{}, calls: map[string]int{},
	}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	tb.Cleanup(a.Close)
	return a
}

// Environment returns the variables of a process that uses the server as AWS.
func (a *AWS) Environment() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + a.URL, "AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=" + AccessKeyID,
		"AWS_SECRET_ACCESS_KEY=" + SecretAccessKey, "AWS_SESSION_TOKEN=", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
	}
}

// PutSecret stores a secret in Secrets Manager. The previous value gets the label AWSPREVIOUS.
func (a *AWS) PutSecret(name, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := map[string]string{"AWSCURRENT": text}
	if before, ok := a.secrets[name]; ok {
		of["AWSPREVIOUS"] = before["AWSCURRENT"]
	}
	a.secrets[name] = of
	delete(a.deleted, name)
}

// DeleteSecret marks a secret for deletion.
func (a *AWS) DeleteSecret(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deleted[name] = true
}

// PutParameter adds a version of a parameter with labels.
func (a *AWS) PutParameter(name, text string, labels ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parameters[name] = append(a.parameters[name], text)
	for _, label := range labels {
		a.labels[name+":"+label] = len(a.parameters[name])
	}
}

// Fail makes an operation, such as GetSecretValue or AssumeRole, fail from now on. The zero Fault ends that.
func (a *AWS) Fail(operation string, f Fault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults[operation] = f
}

// Allow sets a policy: the secrets that a session may read. Its Role is empty for the node itself.
func (a *AWS) Allow(policy func(s Session, operation, name string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.allow = policy
}

// Calls returns how often an operation was called.
func (a *AWS) Calls(operation string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls[operation]
}

func (a *AWS) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	form := url.Values{}
	if operation == "" {
		form, _ = url.ParseQuery(string(body))
		operation = form.Get("Action")
	}
	a.mu.Lock()
	a.calls[operation]++
	fault := a.faults[operation]
	a.mu.Unlock()
	switch {
	case fault.Slow:
		<-r.Context().Done()
		return
	case fault.Echo:
		echo(w, r, operation, fault)
		return
	case fault.Body != "":
		w.WriteHeader(max(fault.Status, 200))
		_, _ = io.WriteString(w, fault.Body)
		return
	case fault.Status != 0:
		refuse(w, operation, fault.Status, fault.Code)
		return
	case fault.Reset:
		lost := httptest.NewRecorder()
		a.respond(lost, r, operation, body, form)
		w.Header().Set("Content-Length", strconv.Itoa(lost.Body.Len()))
		_, _ = w.Write(lost.Body.Bytes()[:lost.Body.Len()/2])
		panic(http.ErrAbortHandler)
	}
	a.respond(w, r, operation, body, form)
}

// respond checks a request and serves it.
func (a *AWS) respond(w http.ResponseWriter, r *http.Request, operation string, body []byte, form url.Values) {
	session, code := a.authenticate(r, body)
	switch {
	case code != "":
		refuse(w, operation, http.StatusBadRequest, code)
	case operation == "AssumeRole":
		a.assumeRole(w, form)
	case operation == "SendMessage":
		a.sendMessage(w, r, session, body)
	case operation == "Publish":
		a.publish(w, session, form)
	default:
		a.operate(w, session, operation, body)
	}
}

// operate serves the operations with JSON protocols.
func (a *AWS) operate(w http.ResponseWriter, session Session, operation string, body []byte) {
	in := awsInput{}
	if err := json.Unmarshal(body, &in); err != nil {
		refuse(w, operation, http.StatusBadRequest, "SerializationException")
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.allow != nil && !a.allow(session, operation, in.SecretID+in.Name+in.KeyID) {
		refuse(w, operation, http.StatusBadRequest, "AccessDeniedException")
		return
	}
	var out any
	code := "UnknownOperationException"
	switch operation {
	case "GetSecretValue":
		out, code = a.getSecret(in)
	case "GetParameter":
		out, code = a.getParameter(in)
	case "GenerateDataKeyWithoutPlaintext":
		out, code = in.createKey()
	case "Decrypt":
		out, code = in.decrypt()
	}
	if code != "" {
		refuse(w, operation, http.StatusBadRequest, code)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	_ = json.NewEncoder(w).Encode(out)
}

// awsInput has the parameters of the operations.
type awsInput struct {
	SecretID          string `json:"SecretId"`
	VersionStage      string
	Name              string
	WithDecryption    bool
	KeyID             string `json:"KeyId"`
	KeySpec           string
	CiphertextBlob    []byte
	EncryptionContext map[string]string
}

func (a *AWS) getSecret(in awsInput) (out any, code string) {
	stage := in.VersionStage
	if stage == "" {
		stage = "AWSCURRENT"
	}
	text, ok := a.secrets[in.SecretID][stage]
	switch {
	case a.deleted[in.SecretID]:
		return nil, "InvalidRequestException"
	case !ok:
		return nil, "ResourceNotFoundException"
	case strings.HasPrefix(text, "binary:"):
		return map[string]any{"SecretBinary": []byte(text[7:])}, ""
	}
	return map[string]any{"SecretString": text, "VersionStages": []string{stage}}, ""
}

func (a *AWS) getParameter(in awsInput) (out any, code string) {
	name, version := in.Name, ""
	if from := strings.LastIndex(name, "parameter/") + 1; strings.Contains(name[from:], ":") {
		at := strings.LastIndexByte(name, ':')
		name, version = name[:at], name[at+1:]
	}
	all := a.parameters[name]
	n := len(all)
	if labelled, ok := a.labels[in.Name]; ok {
		n = labelled
	} else if version != "" {
		if _, err := fmt.Sscan(version, &n); err != nil {
			n = -1
		}
	}
	switch {
	case len(all) == 0:
		return nil, "ParameterNotFound"
	case n < 1 || n > len(all):
		return nil, "ParameterVersionNotFound"
	case !in.WithDecryption:
		return nil, "ValidationException"
	}
	return map[string]any{"Parameter": map[string]any{"Value": all[n-1], "Version": n, "Type": "SecureString"}}, ""
}

// assumeRole serves STS.
func (a *AWS) assumeRole(w http.ResponseWriter, form url.Values) {
	s := Session{Role: form.Get("RoleArn"), Name: form.Get("RoleSessionName"), ExternalID: form.Get("ExternalId"), Tags: map[string]string{}}
	for n := 1; form.Get(fmt.Sprintf("Tags.member.%d.Key", n)) != ""; n++ {
		s.Tags[form.Get(fmt.Sprintf("Tags.member.%d.Key", n))] = form.Get(fmt.Sprintf("Tags.member.%d.Value", n))
	}
	sum := sha256.Sum256([]byte(fmt.Sprint(s)))
	id := "ASIA" + strings.ToUpper(hex.EncodeToString(sum[:8]))
	a.mu.Lock()
	a.sessions[id] = s
	a.mu.Unlock()
	w.Header().Set("Content-Type", "text/xml")
	fmt.Fprintf(w, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
		<AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken>
		<Expiration>%s</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`,
		id, "key-"+id, "session-"+id, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

// authenticate checks the signature of a request like AWS: it signs what it received.
func (a *AWS) authenticate(r *http.Request, body []byte) (s Session, code string) {
	id, scope, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential="), "/")
	credentials := aws.Credentials{AccessKeyID: AccessKeyID, SecretAccessKey: SecretAccessKey}
	a.mu.Lock()
	s, known := a.sessions[id]
	a.mu.Unlock()
	if known {
		credentials = aws.Credentials{AccessKeyID: id, SecretAccessKey: "key-" + id, SessionToken: "session-" + id}
	} else if id != AccessKeyID {
		return s, "UnrecognizedClientException"
	}
	parts := strings.Split(scope, "/") // date, region, service, the rest
	if len(parts) < 4 {
		return s, "MissingAuthenticationTokenException"
	}
	target, _, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	query := "sts" // the service of form requests
	if bytes.Contains(body, []byte("Action=Publish")) {
		query = "sns"
	}
	if service := map[string]string{
		"secretsmanager": "secretsmanager", "AmazonSSM": "ssm", "TrentService": "kms", "AmazonSQS": "sqs", "": query,
	}[target]; service != parts[2] {
		return s, "InvalidSignatureException"
	}
	if code := verify(r, "http://"+r.Host+r.URL.RequestURI(), body, credentials, parts[2], parts[1]); code != "" {
		return s, code
	}
	return s, ""
}

// verify signs a request again and returns the error code for a different signature, or "".
func verify(r *http.Request, address string, body []byte, credentials aws.Credentials, service, region string) (code string) {
	given := r.Header.Get("Authorization")
	again, err := http.NewRequestWithContext(r.Context(), r.Method, address, nil)
	if err != nil {
		return "InvalidSignatureException"
	}
	_, list, _ := strings.Cut(given, "SignedHeaders=")
	list, _, _ = strings.Cut(list, ",")
	for name := range strings.SplitSeq(list, ";") {
		if name != "host" && name != "content-length" {
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	if strings.Contains(list, "content-length") {
		again.ContentLength = int64(len(body))
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || time.Since(at).Abs() > 5*time.Minute {
		return "InvalidSignatureException"
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(r.Context(), credentials, again, hex.EncodeToString(sum[:]), service, region, at); err != nil {
		return "InvalidSignatureException"
	}
	if !hmac.Equal([]byte(given), []byte(again.Header.Get("Authorization"))) {
		return "InvalidSignatureException"
	}
	return ""
}

// refuse responds with an error. Its message names accounts and roles, which only operators should see.
func refuse(w http.ResponseWriter, operation string, status int, code string) {
	const message = "User: arn:aws:sts::123456789012:assumed-role/node/private is not authorized"
	if operation == "AssumeRole" || operation == "Publish" {
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>`, code, message)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	switch operation { // some services also send the code in a header
	case "GetParameter":
		w.Header().Set("X-Amzn-Errortype", code+":http://internal.amazon.com/coral/com.amazonaws.ssm/")
	case "SendMessage":
		w.Header().Set("X-Amzn-Query-Error", queryCode(code)+";Sender")
	}
	w.WriteHeader(status)
	var text bytes.Buffer
	of := "com.amazonaws." + strings.ToLower(operation) + "#"
	_ = json.NewEncoder(&text).Encode(map[string]string{"__type": of + code, "message": message})
	_, _ = w.Write(text.Bytes())
}
