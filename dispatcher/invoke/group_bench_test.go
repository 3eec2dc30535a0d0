package invoke

import (
	"fmt"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// BenchmarkGroup compares a signed request to the next of 20 registered endpoints with one to the next of 20 webhooks,
// in turns. It measures processor time, which other processes disturb less than elapsed time. Bar: 1.10 times.
func BenchmarkGroup(b *testing.B) {
	var webhooks []target.Call
	grouped := signedCall("")
	group := &target.GroupVersion{}
	group.SetDefaults()
	group.App, group.Name, group.Signing = "shop", "workers", grouped.Target.Webhook.Signing
	group.Registration = &target.Registration{Networks: []string{"127.0.0.0/8"}}
	for i := range 20 {
		address := benchServer(b)
		webhooks = append(webhooks, signedCall("http://"+address+"/hook"))
		_, text, _ := net.SplitHostPort(address)
		port, _ := strconv.Atoi(text)
		group.Registration.Ports = append(group.Registration.Ports, port)
		group.Live = append(group.Live, target.Endpoint{
			ID: fmt.Sprintf("w%02d", i), Source: target.EndpointRegistered, StaticEndpoint: target.StaticEndpoint{URL: "http://" + address},
		})
	}
	to := &target.GroupTarget{Name: "workers", Path: "/hook"}
	to.SetDefaults()
	grouped.Target, grouped.Group = target.Target{Group: to}, group
	invoker := New(Options{Egress: web.Egress{Loopback: true}})
	defer invoker.Close()
	var took [2]time.Duration
	b.ReportAllocs()
	for b.Loop() {
		for i := range took {
			began := processorTime(b)
			for next := range webhooks {
				call := webhooks[next]
				if i == 1 {
					call = grouped
				}
				if outcome := invoker.Invoke(b.Context(), call); outcome.State != run.Succeeded {
					b.Fatal(outcome)
				}
			}
			took[i] += processorTime(b) - began
		}
	}
	b.ReportMetric(float64(took[0].Microseconds())/float64(b.N*len(webhooks)), "µs/webhook")
	b.ReportMetric(float64(took[1])/float64(took[0]), "times-webhook")
}

// processorTime returns how long this process has had a processor.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
