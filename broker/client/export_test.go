package client

import "context"

// Addresses are what the options' names stand for.
func Addresses(ctx context.Context, o Options) ([]string, error) {
	c := &Client{o: o}
	return c.addresses(ctx)
}
