// Command terraform-provider-carillon serves the provider to Terraform, which starts it.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"

	"github.com/carillon-dev/carillon/provider"
)

// version is set by the release: -ldflags "-X main.version=1.2.3".
var version = "dev"

func main() {
	debugged := flag.Bool("debug", false, "serve a debugger: print TF_REATTACH_PROVIDERS and wait")
	flag.Parse()
	var options []tf6server.ServeOpt
	if *debugged {
		options = append(options, tf6server.WithManagedDebug())
	}
	if err := saveTime(); err != nil {
		log.Fatal(err)
	}
	start := func() tfprotov6.ProviderServer { return provider.NewServer(context.Background(), version) }
	if err := tf6server.Serve(provider.Address, start, options...); err != nil {
		log.Fatal(err)
	}
}

// saveTime avoids useless work. The process lives for one plan, so memory may grow further before it is
// collected. Unless logs are requested, Terraform reads and parses each line only to discard it.
func saveTime() error {
	const garbage = 800 // percent of the memory in use
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	wanted := func(variable string) bool {
		name, value, _ := strings.Cut(variable, "=")
		return strings.HasPrefix(name, "TF_LOG") && value != ""
	}
	if slices.ContainsFunc(os.Environ(), wanted) {
		return nil
	}
	return os.Setenv("TF_LOG_SDK", "off")
}
