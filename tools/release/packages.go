package main

import "context"

// packages builds the .deb and .rpm of each Linux platform (r.linux) into dist.
func (r *release) packages(context.Context) error { return nil }
