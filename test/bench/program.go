package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/test/freeport"
)

// program is a node that runs the real program in a separate process.
type program struct {
	command *exec.Cmd
	url     string
	secrets string
}

// serve starts a "carillon serve" command, and waits until the node is ready.
func (b *bench) serve(ctx context.Context, command *exec.Cmd) (*program, error) {
	secrets, err := os.MkdirTemp("", "carillon-bench-secrets-")
	if err == nil {
		err = writeSecret(secrets)
	}
	address, addressErr := freeport.Address(ctx)
	if err := errors.Join(err, addressErr); err != nil {
		return nil, err
	}
	p := &program{command: command, url: "http://" + address, secrets: secrets}
	command.Env = append(os.Environ(), "CARILLON_DATABASE="+b.database, "CARILLON_LISTEN="+address,
		"CARILLON_EGRESS_LOOPBACK=true", "CARILLON_SECRET_DIR="+secrets, "CARILLON_LOG_LEVEL=error")
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(secrets))
	}
	for range 300 {
		response, err := http.Get(p.url + "/readyz") //nolint:noctx // it takes milliseconds
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return p, nil
			}
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			break
		}
	}
	p.end()
	return nil, errors.New("the node was not ready after 30 s")
}

// end stops the node and removes its files.
func (p *program) end() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	_ = p.command.Wait() // the measurement is over, however it ends
	_ = os.RemoveAll(p.secrets)
}
