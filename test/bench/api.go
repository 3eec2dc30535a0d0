package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// apiNode is a node over SQLite with its HTTP API.
type apiNode struct {
	url, token string
	node       *node
	server     *http.Server
}

// startAPI starts a node with its database in a directory.
func startAPI(ctx context.Context, dir string) (*apiNode, error) {
	database := "sqlite:" + filepath.Join(dir, "carillon.db")
	if err := store.Migrate(ctx, database); err != nil {
		return nil, err
	}
	n, err := startNode(ctx, nodeOptions{database: database})
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, n.stop())
	}
	const patience = time.Minute
	a := &apiNode{url: "http://" + listener.Addr().String(), node: n, server: &http.Server{
		Handler: api.New(n.store, api.Options{Logger: slog.New(slog.DiscardHandler)}), ReadHeaderTimeout: patience,
	}}
	go func() { _ = a.server.Serve(listener) }() // its error is always http.ErrServerClosed
	secret, hash := access.NewToken()
	a.token = secret
	token := access.APIToken{ID: access.NewTokenID(), Name: "bench", Hash: hash, TokenSpec: access.TokenSpec{Scopes: access.Scopes()}}
	if err := n.store.CreateToken(ctx, token); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *apiNode) close() error { return errors.Join(a.server.Close(), a.node.stop()) }
