// Command terraform-provider-carillon serves the provider to Terraform, which starts it.
package main

import (
	"flag"
	"log"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"

	"github.com/carillon-dev/carillon/provider"
)

// version is set by the release: -ldflags "-X main.version=1.2.3".
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "serve a debugger: print TF_REATTACH_PROVIDERS and wait")
	flag.Parse()
	var options []tf6server.ServeOpt
	if *debug {
		options = append(options, tf6server.WithManagedDebug())
	}
	start := func() tfprotov6.ProviderServer { return provider.NewServer(version) }
	if err := tf6server.Serve(provider.Address, start, options...); err != nil {
		log.Fatal(err)
	}
}
