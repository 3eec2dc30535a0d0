package dns

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestServersAreReadFromResolvConf(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		file string
		want []string
	}{
		"some": {"# comment\nsearch internal\nnameserver 10.0.0.2\nnameserver fd00::53\noptions ndots:5\nnameserver bad\n",
			[]string{"10.0.0.2:53", "[fd00::53]:53"}},
		"too many": {"nameserver 10.0.0.2\nnameserver 10.0.0.3\nnameserver 10.0.0.4\nnameserver 10.0.0.5\n",
			[]string{"10.0.0.2:53", "10.0.0.3:53", "10.0.0.4:53"}},
		"none":    {"search internal\n", []string{"127.0.0.1:53"}},
		"no file": {"", []string{"127.0.0.1:53"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "resolv.conf")
			if tt.file != "" {
				if err := os.WriteFile(file, []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			compare := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
			var want []netip.AddrPort
			for _, text := range tt.want {
				want = append(want, netip.MustParseAddrPort(text))
			}
			if diff := cmp.Diff(want, servers(file), compare); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
