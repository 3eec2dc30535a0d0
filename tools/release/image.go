package main

import "context"

func (r *release) image(context.Context) error { return nil }
