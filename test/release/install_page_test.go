package release_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// block is a block of commands on a page. "sh" marks those that a reader on Debian runs in order.
var block = regexp.MustCompile("(?ms)^( *)```sh\n(.*?)^ *```$")

// The test follows docs/how-to/install-on-one-machine.md in a bare Debian, and runs its commands word by word
// in one shell. Two things differ, because the machine has no network: curl takes the files of the release
// from a directory, and the provider is where Terraform looks before it asks a registry.
func TestInstallPageWorksOnABareDebian(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	terraform := need.Client(t, "terraform")
	dist := directory(t, built.snapshot)
	m := boot(t, dist, "--bind-ro="+terraform+":/usr/local/bin/terraform")
	m.run(t, `mkdir -p /usr/local/share/terraform/plugins
		cp -r /release/mirror/* /usr/local/share/terraform/plugins/`)

	page := string(must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "docs", "how-to", "install-on-one-machine.md"))))
	blocks := block.FindAllStringSubmatch(page, -1)
	if len(blocks) < 10 {
		t.Fatalf("the page has %d blocks of commands; are they still marked with sh?", len(blocks))
	}
	const assigned = "VERSION=0.1.0\n"
	if !strings.HasPrefix(blocks[0][2], assigned) {
		t.Fatalf("the page begins with %q, want %q", blocks[0][2], assigned)
	}
	blocks[0][2] = "VERSION=" + version + "\n" + strings.TrimPrefix(blocks[0][2], assigned)

	s := m.shell(t)
	s.run(t, `curl() {
		local url=${!#}
		case "$*" in
		*/releases/download/v`+version+`/*) cp "/release/${url##*/}" . ;;
		*) command curl "$@" ;;
		esac
	}`)
	for _, b := range blocks {
		if strings.Contains(b[2], "https://example.com/") { // instead, the job reads a page of a second node
			s.run(t, `echo CARILLON_EGRESS_LOOPBACK=true >> /etc/carillon/carillon.env; systemctl restart carillon
				systemd-run --quiet carillon serve --database sqlite:/var/tmp/page.db --listen 127.0.0.1:8090`)
			b[2] = strings.ReplaceAll(b[2], "https://example.com/", "http://127.0.0.1:8090/livez")
		}
		if strings.Contains(b[2], "state=succeeded") { // "Wait for ten seconds"
			until(t, "the first run", func() bool { return strings.Contains(s.run(t, b[2]), `"state":"succeeded"`) })
			continue
		}
		t.Logf("%s%s", b[2], s.run(t, b[2]))
	}
	m.want(t, "dpkg-query --show --showformat '${db:Status-Status}' carillon", "config-files")
}
