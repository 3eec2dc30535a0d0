package routing_test

import (
	"fmt"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/routing"
)

func BenchmarkRoute(b *testing.B) {
	for _, s := range routing.Strategies() {
		for _, count := range []int{20, 200} {
			b.Run(fmt.Sprintf("%s/%d endpoints", s, count), func(b *testing.B) {
				n := newNode(b, s, 1)
				members := n.group.NewMembers(up(count))
				b.ReportAllocs()
				for b.Loop() {
					n.fire(members, "customer/4711")
				}
			})
		}
	}
}

func BenchmarkNewMembers(b *testing.B) {
	for _, count := range []int{20, 200} {
		b.Run(fmt.Sprintf("%d endpoints", count), func(b *testing.B) {
			n := newNode(b, routing.LeastFrequentlyUsed, 1)
			endpoints := up(count)
			b.ReportAllocs()
			for b.Loop() {
				n.fire(n.group.NewMembers(endpoints), "")
			}
		})
	}
}
