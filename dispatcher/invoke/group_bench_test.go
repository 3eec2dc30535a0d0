package invoke

import (
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// BenchmarkGroup compares a signed request to the next of 20 registered endpoints with one to the next of 20 webhooks, in
// turns. Bar: 1.10 times.
func BenchmarkGroup(b *testing.B) {
	var webhooks []dispatcher.Call
	grouped := signedCall("")
	group := &dispatcher.GroupVersion{}
	group.SetDefaults()
	group.App, group.Name, group.Signing = "shop", "workers", grouped.Target.Webhook.Signing
	group.Registration = &dispatcher.Registration{Networks: []string{"127.0.0.0/8"}}
	for i := range 20 {
		address := benchServer(b)
		webhooks = append(webhooks, signedCall("http://"+address+"/hook"))
		_, text, _ := net.SplitHostPort(address)
		port, _ := strconv.Atoi(text)
		group.Registration.Ports = append(group.Registration.Ports, port)
		group.Live = append(group.Live, dispatcher.Endpoint{
			ID: fmt.Sprintf("w%02d", i), Source: dispatcher.EndpointRegistered, StaticEndpoint: dispatcher.StaticEndpoint{URL: "http://" + address},
		})
	}
	target := &dispatcher.GroupTarget{Name: "workers", Path: "/hook"}
	target.SetDefaults()
	grouped.Target, grouped.Group = dispatcher.Target{Group: target}, group
	invoker := New(Options{Egress: Egress{Loopback: true}})
	defer invoker.Close()
	var took [2]time.Duration
	next := 0
	b.ReportAllocs()
	for b.Loop() {
		next = (next + 1) % len(webhooks)
		for i, call := range []dispatcher.Call{webhooks[next], grouped} {
			began := time.Now()
			if outcome := invoker.Invoke(b.Context(), call); outcome.State != dispatcher.RunSucceeded {
				b.Fatal(outcome)
			}
			took[i] += time.Since(began)
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "times-webhook")
}
