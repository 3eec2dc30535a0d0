package main

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// serveAt starts a node at a listen address and waits until a probe passes.
func serveAt(t *testing.T, listen string, probeEnv []string, args ...string) *process {
	t.Helper()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := launchNode(t, database, "", nil, append(args, "--listen="+listen)...)
	until(t, "the probe to pass", func() bool {
		out, errs, code := carillon(t, probeEnv, "probe", "readyz", "--listen="+listen, "--timeout=1m")
		if code != 0 && (code != exitFailure || out != "" || strings.Count(errs, "\n") != 1) {
			t.Fatalf("probe: exit %d, %q, %q, want one line", code, out, errs)
		}
		return code == 0
	})
	return n
}

func TestProbePassesWhileTheNodeResponds(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	_, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	listen := "0.0.0.0:" + port
	n := serveAt(t, listen, nil)
	for _, env := range [][]string{{"CARILLON_LISTEN=" + listen}, {"CARILLON_LISTEN=:" + port}, {"CARILLON_LISTEN=127.0.0.1:" + port},
		{"CARILLON_LISTEN=[::]:" + port, "HTTP_PROXY=http://127.0.0.1:1", "http_proxy=http://127.0.0.1:1"}} {
		for _, path := range []string{"livez", "readyz", ""} {
			want := path + " at " + strings.TrimPrefix(env[0], "CARILLON_LISTEN=") + ": ok\n"
			args := []string{"probe", "--timeout=1m", path}
			if path == "" {
				want, args = "livez"+want, args[:2]
			}
			if out, errs, code := carillon(t, env, args...); code != 0 || out != want {
				t.Errorf("%v: exit %d, %q, %q, want %q", env, code, out, errs, want)
			}
		}
	}
	n.terminate()
	out, errs, code := carillon(t, nil, "probe", "--listen="+listen, "--timeout=1m")
	if code != exitFailure || !strings.Contains(errs, "refused") || out != "" {
		t.Errorf("after the end of the node: exit %d, %q, %q, want %d", code, out, errs, exitFailure)
	}
}

func TestProbeFailsByTheResponse(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/readyz":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("the database does not answer\n"))
		case "/livez":
			<-hang
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hang) })
	listen := "--listen=" + server.Listener.Addr().String()
	for name, tt := range map[string]struct {
		args []string
		code int
		says string
	}{
		"not ready":           {[]string{"readyz", listen, "--timeout=1m"}, exitFailure, "503 Service Unavailable: the database does not answer"},
		"no response in time": {[]string{"livez", listen, "--timeout=1s"}, exitFailure, "deadline exceeded"},
		"no port":             {[]string{"--listen=127.0.0.1:0"}, exitUsage, "--listen"},
		"no address":          {[]string{"--listen=8080"}, exitUsage, "--listen"},
		"no time":             {[]string{listen, "--timeout=0s"}, exitUsage, "--timeout"},
		"another page":        {[]string{"metrics", listen}, exitUsage, "livez"},
		"no certificate":      {[]string{listen, "--tls-cert=/dev/null"}, exitUsage, "holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errs, code := carillon(t, nil, append([]string{"probe"}, tt.args...)...)
			if code != tt.code || !strings.Contains(errs, tt.says) || out != "" || strings.Count(errs, "\n") != 1 {
				t.Errorf("exit %d, %q, %q, want %d and %q in one line", code, out, errs, tt.code, tt.says)
			}
		})
	}
}

func TestProbeTrustsTheCertificateOfTheNodeOnly(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	certificate, file := certificateFor(t, "carillon.example.com")
	raw := must[[]byte](t)(x509.MarshalECPrivateKey(certificate.PrivateKey.(*ecdsa.PrivateKey)))
	key := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	listen := freeAddress(t)
	serveAt(t, listen, []string{"CARILLON_TLS_CERT=" + file}, "--tls-cert="+file, "--tls-key="+key)
	_, other := certificateFor(t, "carillon.example.com")
	if _, errs, code := carillon(t, nil, "probe", "--listen="+listen, "--tls-cert="+other, "--timeout=1m"); code != exitFailure ||
		!strings.Contains(errs, "another certificate") {
		t.Errorf("another certificate: exit %d, %q, want %d", code, errs, exitFailure)
	}
}
