// Command terraform-provider-carillon serves the provider to Terraform, which starts it.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/carillon-dev/carillon/provider"
)

// version is set by the release: -ldflags "-X main.version=1.2.3".
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "serve a debugger: print TF_REATTACH_PROVIDERS and wait")
	flag.Parse()
	options := providerserver.ServeOpts{Address: provider.Address, Debug: *debug}
	err := providerserver.Serve(context.Background(), provider.New(version), options)
	if err != nil {
		log.Fatal(err)
	}
}
